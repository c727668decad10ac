// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "journal_stories.h"

namespace regroup::journal {
namespace {

using namespace rendezvous;  // NOLINT: every event.
using regroup::testing::lines_of;
using ::testing::HasSubstr;

Entry entry_with(std::optional<Event> event) {
    return {Instant(std::chrono::microseconds(123456789)), 1795311368237, std::move(event), {}};
}

template <class Message>
Message through(const Message& event) {
    const Result<Entry> decoded = decode_entry(encode(entry_with(event)));
    if (!decoded || !decoded->event || !std::holds_alternative<Message>(*decoded->event)) {
        ADD_FAILURE() << (decoded ? "another event" : decoded.error().detail);
        return {};
    }
    EXPECT_EQ(decoded->at, entry_with({}).at);
    EXPECT_EQ(decoded->wall_ms, entry_with({}).wall_ms);
    return std::get<Message>(*decoded->event);
}

TEST(JournalEntries, JoinKeepsEveryField) {
    const Join join = regroup::testing::sample_join();
    const NodeJoined event{join.node, join.policy, join.offer, join.report};
    const NodeJoined kept = through(event);
    EXPECT_EQ(kept.node, event.node);
    EXPECT_EQ(kept.policy, event.policy);
    EXPECT_EQ(kept.report, event.report);
    EXPECT_EQ(kept.offer.name, event.offer.name);
    EXPECT_EQ(kept.offer.workers, event.offer.workers);
    EXPECT_EQ(kept.offer.role, event.offer.role);
    EXPECT_EQ(kept.offer.slot, event.offer.slot);
    EXPECT_EQ(kept.offer.address, event.offer.address);
    EXPECT_TRUE(kept.offer.address_is_explicit);
    EXPECT_EQ(kept.offer.other_addresses, event.offer.other_addresses);
}

TEST(JournalEntries, AddressSeenByTheDaemonIsKeptAsSuch) {
    NodeJoined event = regroup::testing::joined("a");
    event.offer.address = "10.0.0.9";
    EXPECT_EQ(through(event).offer.address, "10.0.0.9");
    EXPECT_FALSE(through(event).offer.address_is_explicit);
}

TEST(JournalEntries, OtherEventsKeepEveryField) {
    const NodeReport report = regroup::testing::sample_report();
    EXPECT_EQ(through(NodeReported{"n", report}).report, report);
    EXPECT_EQ(through(NodeReported{"n", report}).node, "n");
    EXPECT_EQ(through(NodeDisconnected{"n"}).node, "n");
    EXPECT_EQ(through(NodeLeft{"n", "why"}).reason, "why");
    EXPECT_FALSE(through(NodeLeft{"n", "why"}).killed);
    EXPECT_TRUE(through(NodeLeft{"n", "why", true}).killed);
    EXPECT_EQ(through(StopRequested{"ann", "why"}).author, "ann");
    EXPECT_EQ(through(StopRequested{"ann", "why"}).reason, "why");
    EXPECT_EQ(through(DrainRequested{"a", "ann", "why"}).node, "a");
    EXPECT_EQ(through(DrainRequested{"a", "ann", "why"}).author, "ann");
    EXPECT_EQ(through(ReleaseRequested{"a", "ann", "why"}).node, "a");
    EXPECT_EQ(through(ReleaseRequested{"a", "ann", "why"}).author, "ann");
    EXPECT_EQ(through(ReleaseRequested{"a", "ann", "why"}).reason, "why");
    const Resumed resumed = regroup::testing::sample_resumed();
    EXPECT_EQ(through(NodeResumed{"n", resumed}).resumed.step, resumed.step);
    EXPECT_EQ(through(NodeResumed{"n", resumed}).resumed.first_step, resumed.first_step);
    through(Restarted{});
    const Result<Entry> time = decode_entry(encode(entry_with(std::nullopt)));
    ASSERT_TRUE(time);
    EXPECT_FALSE(time->event);
}

TEST(JournalEntries, AssignmentsAreKept) {
    Entry entry = entry_with(std::nullopt);
    entry.assigned = {{"n", regroup::testing::sample_assignment()}, {"m", Assignment()}};
    entry.assigned[1].assignment.master_addr = "10.0.0.1";
    const Result<Entry> decoded = decode_entry(encode(entry));
    ASSERT_TRUE(decoded) << decoded.error().detail;
    EXPECT_EQ(decoded->assigned, entry.assigned);
}

TEST(JournalEntries, MalformedEntriesAreNamed) {
    for (const auto& [text, named] : std::vector<std::pair<std::string, std::string>>{
             {"", "JSON"},
             {"[]", "JSON"},
             {"{}", "at_us"},
             {R"({"at_us":-1})", "at_us"},
             {R"({"at_us":1,"event":"danced"})", "event"},
             {R"({"at_us":1,"event":"left"})", "node"},
             {R"({"at_us":1,"event":"reported","node":"n","round":1,"state":"x"})", "state"},
             {R"({"at_us":1,"event":"follows","nodes_min":1,"nodes_max":1})", "last_round"},
             {R"({"at_us":1,"assigned":[{"node":"n"}]})", "round"}}) {
        const Result<Entry> decoded = decode_entry(text);
        ASSERT_FALSE(decoded) << text;
        EXPECT_THAT(decoded.error().detail, HasSubstr(named));
    }
}

TEST(JournalEntries, JobThatFollowsAnotherKeepsItsPolicyAndTheRound) {
    const JobFollows event{regroup::testing::sample_join().policy, RoundId{17}};
    EXPECT_EQ(through(event).policy, event.policy);
    EXPECT_EQ(through(event).last, RoundId{17});
}

TEST(JournalEntries, LinesOfSeveralJobsAreReadBack) {
    StoredJob one = regroup::testing::story_of_two_rounds().job();
    StoredJob other = one;
    other.key = {"other", 7};
    other.ended = true;
    const auto jobs = from_lines(lines_of(one) + lines_of(other));
    ASSERT_TRUE(jobs) << jobs.error().detail;
    ASSERT_EQ(jobs->size(), 2U);
    EXPECT_EQ((*jobs)[0].key, one.key);
    EXPECT_EQ((*jobs)[1].key, other.key);
    EXPECT_TRUE((*jobs)[1].ended);
    EXPECT_EQ(lines_of((*jobs)[0]), lines_of(one));
    EXPECT_FALSE(from_lines(R"({"at_us":1})"));
    EXPECT_THAT(from_lines("{\"job\":\"a\"}\nnonsense").error().detail, HasSubstr("line 2"));
}

}  // namespace
}  // namespace regroup::journal
