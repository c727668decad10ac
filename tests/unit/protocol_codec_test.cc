// SPDX-License-Identifier: Apache-2.0

#include <gmock/gmock.h>
#include <nlohmann/json.hpp>

#include "protocol_samples.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "tests/support/words.h"
#include "tests/unit/protocol_round_trip.h"

namespace regroup::protocol {
namespace {

using namespace rendezvous;  // NOLINT: every message.
using nlohmann::json;
using regroup::testing::sample_assignment;
using regroup::testing::sample_failure;
using regroup::testing::sample_incident;
using regroup::testing::sample_join;
using regroup::testing::sample_operate;
using regroup::testing::sample_report;
using regroup::testing::sample_verdict;
using regroup::testing::sample_waiting;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// ---- Encoding and decoding.

template <class Variant>
void expect_each_kept(const std::vector<Variant>& samples) {
    EXPECT_EQ(samples.size(), std::variant_size_v<Variant>);
    for (const Variant& sample : samples) {
        const auto check = []<class Message>(const Message& message) {
            expect_kept(message);
            if constexpr (!std::is_same_v<Message, Operate>) {  // Its fields depend on the action.
                boost::pfr::for_each_field(Message(), [&](const auto& usual, auto at) {
                    EXPECT_FALSE(boost::pfr::get<at>(message) == usual)
                        << "the sample has a default: field " << at << " of " << encode(message);
                });
            }
        };
        std::visit(check, sample);
    }
}

TEST(ProtocolCodec, EveryMessageKeepsEveryField) {
    expect_each_kept(regroup::testing::samples_from_agent());
    expect_each_kept(regroup::testing::samples_from_daemon());
}

TEST(ProtocolCodec, MessagesKeepTheirDefaults) {
    expect_kept(Leave{});
    expect_kept(LogPart{});
    expect_kept(Operate{});
    expect_kept(Prepare{});
    expect_kept(EndWorker{});
    expect_kept(Elsewhere{});
    expect_kept(Recovered{});
    expect_kept(Waiting{});
    expect_kept(Operated{});
    expect_kept(Closed{});
    expect_kept(Report{});
    expect_kept(Report{sample_report(), Telemetry{.counters = {.steps = 1}}});
}

TEST(ProtocolCodec, JoinKeepsItsDefaultsWithoutSendingThem) {
    Join join;
    join.job = "j";
    join.node = "n";
    join.offer.name = "a";
    expect_kept(join);
    const json object = json_of(FromAgent(join));
    for (const char* key : {"last_call_ms",
                            "heartbeat_timeout_ms",
                            "shutdown_timeout_ms",
                            "grow_after_ms",
                            "role",
                            "slot",
                            "rank_key",
                            "rank_order",
                            "address",
                            "other_addresses",
                            "failure",
                            "regroup_window_ms",
                            "standbys_max",
                            "prepare_timeout_ms",
                            "finish_timeout_ms",
                            "finished",
                            "on_exit",
                            "budgets",
                            "elastic",
                            "step",
                            "draining",
                            "hang",
                            "positions",
                            "alarm",
                            "broken_links",
                            "held_step",
                            "ended_step",
                            "store_spent",
                            "at_work_ms",
                            "ended_ago_ms",
                            "hosts_rendezvous",
                            "same_command_only",
                            "reads_logs",
                            "ends_with_daemon",
                            "alone",
                            "join_timeout_ms",
                            "secret",
                            "store_key",
                            "command",
                            "began_ago_ms"}) {
        EXPECT_FALSE(object.contains(key)) << key;
    }
}

TEST(ProtocolCodec, AddressSeenByTheDaemonIsNotSentBack) {
    Join join = sample_join();
    join.offer.address_is_explicit = false;
    EXPECT_EQ(through(join).offer.address, "");
    EXPECT_FALSE(through(join).offer.address_is_explicit);
}

TEST(ProtocolCodec, SlotZeroIsNotTheSameAsNoSlot) {
    Join join = sample_join();
    join.offer.slot = 0;
    EXPECT_EQ(through(join).offer.slot, 0U);
    join.offer.slot.reset();
    EXPECT_EQ(through(join).offer.slot, std::nullopt);
}

TEST(ProtocolCodec, EachPolicyTimeIsDecodedSeparately) {
    Duration JobPolicy::* const times[] = {
        &JobPolicy::last_call,     &JobPolicy::heartbeat_timeout, &JobPolicy::shutdown_timeout,
        &JobPolicy::grow_after,    &JobPolicy::regroup_window,    &JobPolicy::prepare_timeout,
        &JobPolicy::finish_timeout};
    for (const auto time : times) {
        Join join = sample_join();
        join.policy = JobPolicy();
        join.policy.*time = std::chrono::milliseconds(777);
        EXPECT_EQ(through(join).policy, join.policy);
    }
}

TEST(ProtocolCodec, EachBudgetIsDecodedSeparately) {
    Join join = sample_join();
    const Budgets all = join.policy.budgets;
    std::vector<Budgets> alone(7);
    alone[0].hangs = all.hangs;  // 0 is not the same as none.
    alone[1].losses = all.losses;
    alone[2].refill_steps = all.refill_steps;
    alone[3].no_progress_max = 0;
    alone[4].delay = Duration::zero();
    alone[5].node_failures_max = 0;
    alone[6].node_failures_window = all.node_failures_window;
    for (const Budgets& budgets : alone) {
        join.policy.budgets = budgets;
        EXPECT_EQ(through(join).policy.budgets, budgets);
    }
}

TEST(ProtocolCodec, ReportKeepsEveryState) {
    for (const NodeState state :
         {NodeState::stopped, NodeState::running, NodeState::stopping, NodeState::finished}) {
        Report report{sample_report()};
        report.report.state = state;
        expect_kept(report);
        report.report.failure.reset();
        expect_kept(report);
    }
}

TEST(ProtocolCodec, FailureKeepsEachKindOfEnd) {
    WorkerFailure failure;
    failure.exit_code = 255;
    expect_kept(Report{{.failure = failure}});
    failure.exit_code = -1;
    failure.signal = 9;
    expect_kept(Report{{.failure = failure}});
    failure.signal = 0;
    failure.start_error = "no such file";
    expect_kept(Report{{.failure = failure}});
}

TEST(ProtocolCodec, EveryKindOfFailureIsDecoded) {
    for (const FailureKind kind : {FailureKind::failure, FailureKind::hang, FailureKind::user_error,
                                   FailureKind::retry, FailureKind::bad_node}) {
        Report report{sample_report()};
        report.report.failure->kind = kind;
        EXPECT_EQ(through(report).report.failure->kind, kind);
    }
}

TEST(ProtocolCodec, OperateKeepsEveryFieldOfEveryAction) {
    Operate operate = sample_operate();
    for (const Operate::Action action : {Operate::Action::drain, Operate::Action::release,
                                         Operate::Action::stop, Operate::Action::logs}) {
        operate.action = action;
        operate.log =
            action == Operate::Action::logs ? regroup::testing::sample_log_wish() : LogWish{};
        expect_kept(operate);
    }
    expect_kept(ReadLog{1, {3, LogStream::out, "", "", 0, 50}});
}

TEST(ProtocolCodec, PartOfALogKeepsEveryByteThatIsUtf8) {
    expect_kept(LogPart{12, "/runs/x.err", 4107, "\x1b[1mstep\x01 \u00fc\n", true, ""});
    // Each byte that is no UTF-8 becomes three.
    EXPECT_EQ(through(LogPart{1, "f", 0, std::string(kLogBytesMax, '\xff')}).text.size(),
              3 * kLogBytesMax);
}

TEST(ProtocolCodec, PositionsFurthestBehindAreKept) {
    Report report{sample_report()};
    report.report.positions.clear();
    for (std::uint32_t rank = 0; rank < 1000; ++rank) {
        report.report.positions.push_back(
            {rank, 1000 - rank / 2, rank, true, std::string(99, 'x')});
    }
    const std::vector<RankPosition> kept = through(report).report.positions;
    ASSERT_THAT(kept, SizeIs(kPositionsMax));
    EXPECT_EQ(kept.front().rank, 998U);
    EXPECT_EQ(kept.front().doing, std::string(kDoingBytesMax, 'x'));
}

TEST(ProtocolCodec, CollectivesAreCutToTheFirstAndTheLastOnes) {
    Report report{sample_report()};
    report.report.positions.assign(1, RankPosition());
    GroupPosition group;
    group.called.push_back({1, "broadcast", ""});
    for (std::uint64_t number = 100; number < 115; ++number) {
        group.called.push_back({number, "all_reduce", ""});
    }
    for (const auto& [groups, kept] : {std::pair(kCalledToldOfAll / kCalledTold, kCalledTold),
                                       std::pair(kGroupsTold, kCalledToldOfAll / kGroupsTold)}) {
        report.report.positions[0].groups.assign(groups, group);
        const std::vector<GroupPosition> read = through(report).report.positions.at(0).groups;
        ASSERT_THAT(read, SizeIs(groups));
        ASSERT_THAT(read.back().called, SizeIs(kept));
        EXPECT_EQ(read.back().called.front().number, 1U);
        EXPECT_EQ(read.back().called[1].number, 116 - kept);
        EXPECT_EQ(read.back().called.back().number, 114U);
    }
}

TEST(ProtocolCodec, RoleRanksAreLeftOutWhereTheyAreTheRanks) {
    Assignment assignment = sample_assignment();
    assignment.role_first_rank = assignment.first_rank;
    assignment.role_world_size = assignment.world_size;
    expect_kept(Assign{assignment});
    EXPECT_FALSE(json_of(FromDaemon(Assign{assignment})).contains("role_first_rank"));
}

// An older daemon does not send it; then the round trains.
TEST(ProtocolCodec, RecoveryIsNotCutShortByDefault) {
    const json recovered = json_of(FromDaemon(Recovered{sample_incident()}));
    EXPECT_FALSE(recovered.contains("cut_short"));
    Verdict verdict = sample_verdict();
    verdict.goodput.cut_short = 0;
    const json closed = json_of(FromDaemon(Closed{verdict}));
    EXPECT_FALSE(closed.contains("recoveries_cut_short"));
    expect_kept(Closed{verdict});
    Incident cut_short = sample_incident();
    cut_short.cut_short = true;
    expect_kept(Recovered{cut_short});
}

TEST(ProtocolCodec, OperatedKeepsALongText) {
    const std::string text(kAnswerBytesMax, '"');
    expect_kept(Operated{true, text});
    EXPECT_LE(encode(FromDaemon(Operated{true, std::string(1U << 20U, '\x01')})).size(),
              kFrameBytesMax);
}

TEST(ProtocolCodec, RefusedKeepsEveryCode) {
    for (const Errc code : {Errc::invalid_argument, Errc::deadline_exceeded, Errc::disconnected,
                            Errc::overloaded, Errc::fenced, Errc::closed, Errc::system}) {
        expect_kept(Refused{code, "why"});
    }
}

TEST(ProtocolCodec, ClosedKeepsEveryOutcome) {
    for (const Outcome outcome : {Outcome::succeeded, Outcome::failed, Outcome::stopped}) {
        Verdict verdict = sample_verdict();
        verdict.outcome = outcome;
        expect_kept(Closed{verdict});
        verdict.failure.reset();
        expect_kept(Closed{verdict});
    }
}

TEST(ProtocolCodec, LargestRoundsAndRanksSurvive) {
    Assignment assignment = sample_assignment();
    assignment.round = RoundId{std::uint64_t{1} << 53U};
    assignment.first_rank = 2147483647U;
    assignment.world_size = 2147483648U;
    assignment.master_port = 65535;
    expect_kept(Assign{assignment});
}

TEST(ProtocolCodec, RankBeyondTheWorldIsRefused) {
    for (const auto& [first, world] : {std::pair(4U, 4U), std::pair(0U, 0U), std::pair(0U, ~0U)}) {
        Assignment assignment = sample_assignment();
        assignment.first_rank = first;
        assignment.world_size = world;
        const auto decoded = decode_from_daemon(encode(FromDaemon(Assign{assignment})));
        EXPECT_FALSE(decoded) << first << " of " << world;
    }
}

// ---- Tolerance.

TEST(ProtocolCodec, UnknownFieldsAreIgnored) {
    json join = json_of(FromAgent(sample_join()));
    join["colour"] = {{"nested", {1, 2, 3}}};
    join["failure"]["colour"] = "red";
    const Result<FromAgent> decoded = decode_from_agent(join.dump());
    ASSERT_TRUE(decoded) << error_of(decoded);
    EXPECT_TRUE(boost::pfr::eq_fields(std::get<Join>(*decoded), sample_join()));

    json closed = json_of(FromDaemon(Closed{sample_verdict()}));
    closed["colour"] = nullptr;
    const Result<FromDaemon> answer = decode_from_daemon(closed.dump());
    ASSERT_TRUE(answer) << error_of(answer);
    EXPECT_EQ(std::get<Closed>(*answer).verdict, sample_verdict());
}

TEST(ProtocolCodec, ListsOfNamesAreCutNotRefused) {
    json waiting = json_of(FromDaemon(sample_waiting()));
    waiting["joined"] = std::vector<std::string>(1000, "node");
    const Result<FromDaemon> decoded = decode_from_daemon(waiting.dump());
    ASSERT_TRUE(decoded) << error_of(decoded);
    EXPECT_THAT(std::get<Waiting>(*decoded).joined, SizeIs(kNamesMax));
}

}  // namespace
}  // namespace regroup::protocol
