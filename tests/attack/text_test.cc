// SPDX-License-Identifier: Apache-2.0
//
// Text that a node states about itself reaches the terminals of others as text: no escape
// sequence, no line of its own, no direction of writing.
#include "rendezvous/protocol/codec.h"
#include "tests/attack/attack.h"
#include "tests/support/matchers.h"

namespace regroup::attack {
namespace {

using rendezvous::Assign;
using rendezvous::Leave;
using rendezvous::NodeState;
using rendezvous::Report;
using security::Role;
using security::Token;

/// Colours, a title, the clipboard (OSC 52), a lone CSI of 8 bits in UTF-8, bidirectional marks,
/// and a line that looks like one of the launcher's.
const std::string kEvil =
    "evil\x1b[31m\x1b]0;title\x07\x1b]52;c;cm0gLXJmIC8=\x07\xc2\x9b"
    "31m\xe2\x80\xae"
    "esrever\xe2\x81\xa6\xe2\x81\xa9\xe2\x80\x8f\r\nregroup: job victim succeeded\n\x7f\b\x01";

/// Why `text` must not reach a terminal; empty: it may.
std::string objection(const std::string& text) {
    for (const char byte : text) {
        if ((byte >= 0 && byte < 0x20 && byte != '\n') || byte == 0x7f) {
            return "a control character";
        }
    }
    for (const char* mark :
         {"\xc2\x9b", "\xe2\x80\xae", "\xe2\x81\xa6", "\xe2\x81\xa9", "\xe2\x80\x8f"}) {
        if (text.find(mark) != std::string::npos) {
            return "a mark of direction or a control sequence";
        }
    }
    for (const std::string& line : testing::lines_of(text)) {
        if (line.starts_with("regroup: job victim succeeded")) {
            return "a forged line";
        }
    }
    return "";
}

class Text : public ::testing::Test {
   protected:
    static void SetUpTestSuite() { victim_ = std::make_unique<Victim>(Victim::Options{}); }
    static void TearDownTestSuite() {
        victim_->finish(std::size_t{512} << 20U);
        victim_.reset();
    }
    static void expect_printable(const std::string& what, const std::string& text) {
        EXPECT_EQ(objection(text), "") << what << ": " << ::testing::PrintToString(text);
    }
    static void expect_printable_status(const std::string& shown) {
        for (const Words& words : {Words{"status"}, Words{"status", "--json"}}) {
            const auto status = victim_->operate(words);
            EXPECT_EQ(status->wait(), 0);
            expect_printable("status", status->output());
            EXPECT_THAT(status->output(), HasSubstr(shown));
        }
    }
    static std::unique_ptr<Caller> call(Siege& siege) {
        return attack::call(siege, victim_->daemon(),
                            victim_->token().limited_to({Role::node, ""}));
    }

    static inline std::unique_ptr<Victim> victim_;
};

TEST_F(Text, NamesWithControlCharactersAreRefusedOrShownAsText) {
    Siege siege;
    const auto join = nlohmann::json::parse(protocol::encode(join_of("mine", "a", 2, 2)));
    std::size_t refused = 0;
    for (const char* field :
         {"job", "node", "name", "role", "address", "secret", "store_key", "rank_key"}) {
        auto changed = join;
        changed[field] = kEvil;
        const auto caller = call(siege);
        caller->send(protocol::make_frame(changed.dump()));
        refused += caller->await<rendezvous::Refused>() ? 1 : 0;
    }
    EXPECT_EQ(refused, 8U);
    // Without control characters of ASCII, some of it is a name.
    std::vector<std::unique_ptr<Caller>> stay;
    for (const char* field : {"job", "node", "name", "role", "address"}) {
        auto changed = join;
        changed[field] = "evil\xe2\x80\xae esrever\xe2\x81\xa6\xc2\x9b";
        stay.push_back(call(siege));
        stay.back()->send(protocol::make_frame(changed.dump()));
        stay.back()->say(Report{});
        stay.back()->next();
    }
    expect_printable_status("evil");
    expect_printable("log", victim_->daemon_log());
}

TEST_F(Text, WhatANodeSaysIsPrintedAsText) {
    // A job of one honest node, which prints why its job changes and ends, and the stranger.
    Siege siege;
    const auto honest = victim_->start(
        kFirstHost, {testing::regroup_program(), "run", "--nnodes=1:2", "--rdzv-backend=c10d",
                     "--rdzv-endpoint=" + victim_->daemon().text(), "--rdzv-id=shared",
                     "--grow-after=0", "--last-call=0", "--heartbeat-timeout=60",
                     "--token-file=" + victim_->token_file(), testing::elastic_probe_program()});
    ASSERT_TRUE(honest->prints("round 1 from step")) << honest->output();
    rendezvous::Join join = join_of("shared", "other", 1, 2);
    join.policy.program = kEvil;
    const auto liar = call(siege);
    liar->say(join);
    liar->say(Report{});
    liar->await<rendezvous::Refused>();
    // The contradiction is told with the honest node's own policy; so take that.
    testing::Program replay({{testing::regroup_program(), "replay", "--export", "--job=shared",
                              victim_->state_folder()},
                             {},
                             ""});
    ASSERT_EQ(replay.wait(), 0);
    for (const std::string& line : testing::lines_of(replay.output())) {
        auto entry = nlohmann::json::parse(line);
        if (entry.value("event", "") == "joined") {
            entry.update({{"type", "join"}, {"protocol", 1}, {"job", "shared"}});
            const auto decoded = protocol::decode_from_agent(entry.dump());
            ASSERT_TRUE(decoded);
            join.policy = std::get<rendezvous::Join>(*decoded).policy;
        }
    }
    const auto member = call(siege);
    join.report.elastic = true;
    member->say(join);
    Report report = Report{join.report};
    std::optional<rendezvous::Assignment> assigned;
    ASSERT_TRUE(testing::eventually([&] {
        member->say(report);
        const auto assign = member->await<Assign>(milliseconds(200));
        assigned = assign ? std::optional(assign->assignment) : std::nullopt;
        return assigned.has_value();
    }));
    report.report.round = assigned->round;
    report.report.state = NodeState::running;
    report.report.draining = kEvil;
    report.report.hang = rendezvous::Hang{1, kEvil, false, seconds(9)};
    report.report.positions = {{1, 1, 1, false, kEvil, false, {}}};
    member->say(report);
    expect_printable_status("shared");
    report.report.state = NodeState::stopped;
    auto& failure = report.report.failure.emplace();
    failure.exit_code = 2;  // Without restarts the job ends.
    // Told alone, a broken link soon ends the round, and what rank 1 says later follows from it.
    report.report.broken_links = {{1, 0, kEvil}};
    failure.rank = 1;
    failure.node = failure.host = failure.time = failure.log_file = failure.evidence =
        failure.error_file = kEvil;
    failure.last_output = failure.error_message = kEvil;
    member->say(report);
    member->say(Leave{kEvil, false});
    const auto code = honest->wait();
    EXPECT_THAT(code.value_or(0), ::testing::Ne(0)) << honest->output();
    expect_printable("launcher", honest->output());
    EXPECT_THAT(honest->output(), HasSubstr("evil"));
    expect_printable_status("evil");
    expect_printable("log", victim_->daemon_log());
    testing::Program shown(
        {{testing::regroup_program(), "replay", "--job=shared", victim_->state_folder()}, {}, ""});
    EXPECT_EQ(shown.wait(), 0);
    expect_printable("replay", shown.output());
    EXPECT_THAT(shown.output(), HasSubstr("evil"));
    testing::Program traced(
        {{testing::regroup_program(), "trace", "--journal=" + victim_->state_folder(), "shared"},
         {},
         ""});
    EXPECT_EQ(traced.wait(), 0);
    expect_printable("trace", traced.output());
    EXPECT_THAT(traced.output(), HasSubstr("evil"));
}

TEST_F(Text, WhatAnOperatorSaysIsPrintedAsText) {
    Siege siege;
    const auto caller = attack::call(siege, victim_->daemon(),
                                     victim_->token().limited_to({Role::operator_role, ""}));
    rendezvous::Operate drain = drain_of("victim", "nobody");
    drain.author = drain.reason = kEvil;
    caller->say(drain);
    const auto answer = caller->await<rendezvous::Operated>();
    ASSERT_TRUE(answer);
    EXPECT_FALSE(answer->done);
    EXPECT_THAT(victim_->daemon_log(), HasSubstr("asked for by evil"));
    expect_printable("log", victim_->daemon_log());
}

}  // namespace
}  // namespace regroup::attack
