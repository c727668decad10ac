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
using regroup::testing::sample_resumed;
using regroup::testing::sample_telemetry;
using regroup::testing::sample_verdict;
using regroup::testing::sample_waiting;
using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::SizeIs;

void expect_same(const NodeReport& a, const NodeReport& b) {
    EXPECT_EQ(a.round, b.round);
    EXPECT_EQ(a.state, b.state);
    EXPECT_EQ(a.store_port, b.store_port);
    EXPECT_EQ(a.failure, b.failure);
    EXPECT_EQ(a.elastic, b.elastic);
    EXPECT_EQ(a.step, b.step);
    EXPECT_EQ(a.held_step, b.held_step);
    EXPECT_EQ(a.ended_step, b.ended_step);
    EXPECT_EQ(a.store_spent, b.store_spent);
    EXPECT_EQ(a.at_work, b.at_work);
    EXPECT_EQ(a.ended_ago, b.ended_ago);
    EXPECT_EQ(a.draining, b.draining);
    EXPECT_EQ(a.hang, b.hang);
    EXPECT_EQ(a.positions, b.positions);
    EXPECT_EQ(a.alarm, b.alarm);
    EXPECT_EQ(a.broken_links, b.broken_links);
}

void expect_same(const Join& a, const Join& b) {
    EXPECT_EQ(a.job, b.job);
    EXPECT_EQ(a.node, b.node);
    EXPECT_EQ(a.policy, b.policy);
    EXPECT_EQ(a.offer.name, b.offer.name);
    EXPECT_EQ(a.offer.workers, b.offer.workers);
    EXPECT_EQ(a.offer.role, b.offer.role);
    EXPECT_EQ(a.offer.slot, b.offer.slot);
    EXPECT_EQ(a.offer.rank_key, b.offer.rank_key);
    EXPECT_EQ(a.offer.address, b.offer.address);
    EXPECT_EQ(a.offer.address_is_explicit, b.offer.address_is_explicit);
    EXPECT_EQ(a.offer.hosts_rendezvous, b.offer.hosts_rendezvous);
    EXPECT_EQ(a.offer.same_command_only, b.offer.same_command_only);
    EXPECT_EQ(a.offer.reads_logs, b.offer.reads_logs);
    EXPECT_EQ(a.offer.ends_with_daemon, b.offer.ends_with_daemon);
    EXPECT_EQ(a.offer.alone, b.offer.alone);
    EXPECT_EQ(a.offer.join_timeout, b.offer.join_timeout);
    EXPECT_EQ(a.offer.other_addresses, b.offer.other_addresses);
    EXPECT_EQ(a.offer.secret, b.offer.secret);
    EXPECT_EQ(a.offer.store_key, b.offer.store_key);
    EXPECT_EQ(a.offer.command, b.offer.command);
    EXPECT_EQ(a.began_ago, b.began_ago);
    expect_same(a.report, b.report);
}

// ---- Encoding and decoding.

TEST(ProtocolCodec, JoinKeepsEveryField) {
    expect_same(through_agent(sample_join()), sample_join());
}

TEST(ProtocolCodec, JoinKeepsItsDefaultsWithoutSendingThem) {
    Join join;
    join.job = "j";
    join.node = "n";
    join.offer.name = "a";
    expect_same(through_agent(join), join);
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
    EXPECT_EQ(through_agent(join).offer.address, "");
    EXPECT_FALSE(through_agent(join).offer.address_is_explicit);
}

TEST(ProtocolCodec, SlotZeroIsNotTheSameAsNoSlot) {
    Join join = sample_join();
    join.offer.slot = 0;
    EXPECT_EQ(through_agent(join).offer.slot, 0U);
    join.offer.slot.reset();
    EXPECT_EQ(through_agent(join).offer.slot, std::nullopt);
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
        EXPECT_EQ(through_agent(join).policy, join.policy);
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
        EXPECT_EQ(through_agent(join).policy.budgets, budgets);
    }
}

TEST(ProtocolCodec, ReportKeepsEveryFieldInEveryState) {
    for (const NodeState state :
         {NodeState::stopped, NodeState::running, NodeState::stopping, NodeState::finished}) {
        Report report{sample_report()};
        report.report.state = state;
        expect_same(through_agent(report).report, report.report);
        report.report.failure.reset();
        expect_same(through_agent(report).report, report.report);
    }
}

TEST(ProtocolCodec, ReportKeepsItsTelemetry) {
    Report report{sample_report()};
    EXPECT_FALSE(through_agent(report).telemetry);
    report.telemetry = sample_telemetry();
    EXPECT_EQ(through_agent(report).telemetry, sample_telemetry());
    expect_same(through_agent(report).report, report.report);
    report.telemetry = Telemetry{.counters = {.steps = 1}};
    EXPECT_EQ(through_agent(report).telemetry, report.telemetry);
}

TEST(ProtocolCodec, FailureKeepsEachKindOfEnd) {
    WorkerFailure failure;
    failure.exit_code = 255;
    Report report{sample_report()};
    report.report.failure = failure;
    EXPECT_EQ(through_agent(report).report.failure, failure);
    failure.exit_code = -1;
    failure.signal = 9;
    report.report.failure = failure;
    EXPECT_EQ(through_agent(report).report.failure, failure);
    failure.signal = 0;
    failure.start_error = "no such file";
    report.report.failure = failure;
    EXPECT_EQ(through_agent(report).report.failure, failure);
}

TEST(ProtocolCodec, LeaveKeepsItsReason) {
    EXPECT_EQ(through_agent(Leave{"SIGTERM"}).reason, "SIGTERM");
    EXPECT_EQ(through_agent(Leave{}).reason, "");
    EXPECT_FALSE(through_agent(Leave{"SIGTERM"}).killed);
    EXPECT_TRUE(through_agent(Leave{"its agent was killed", true}).killed);
}

TEST(ProtocolCodec, EveryKindOfFailureIsDecoded) {
    for (const FailureKind kind : {FailureKind::failure, FailureKind::hang, FailureKind::user_error,
                                   FailureKind::retry, FailureKind::bad_node}) {
        Report report{sample_report()};
        report.report.failure->kind = kind;
        EXPECT_EQ(through_agent(report).report.failure->kind, kind);
    }
}

TEST(ProtocolCodec, ResumedKeepsEveryField) {
    const Resumed resumed = through_agent(sample_resumed());
    EXPECT_EQ(resumed.round, sample_resumed().round);
    EXPECT_EQ(resumed.step, sample_resumed().step);
    EXPECT_EQ(resumed.communicator, sample_resumed().communicator);
    EXPECT_EQ(resumed.state, sample_resumed().state);
    EXPECT_EQ(resumed.first_step, sample_resumed().first_step);
    EXPECT_EQ(resumed.ago, sample_resumed().ago);
}

TEST(ProtocolCodec, OperateKeepsEveryFieldOfEveryAction) {
    for (const Operate::Action action : {Operate::Action::drain, Operate::Action::release,
                                         Operate::Action::stop, Operate::Action::status}) {
        Operate operate = sample_operate();
        operate.action = action;
        const Operate decoded = through_agent(operate);
        EXPECT_EQ(decoded.action, action);
        EXPECT_EQ(decoded.job, operate.job);
        EXPECT_EQ(decoded.node, operate.node);
        EXPECT_EQ(decoded.author, operate.author);
        EXPECT_EQ(decoded.reason, operate.reason);
        EXPECT_EQ(decoded.wait, operate.wait);
    }
    EXPECT_EQ(through_agent(Operate{}).job, "");
    EXPECT_FALSE(through_agent(Operate{}).wait);
    Operate events;
    events.action = Operate::Action::events;
    events.since = 57;
    events.began_ms = 1764105600123;
    events.follow = true;
    const Operate asked = through_agent(events);
    EXPECT_EQ(asked.action, Operate::Action::events);
    EXPECT_EQ(asked.since, 57U);
    EXPECT_EQ(asked.began_ms, 1764105600123);
    EXPECT_TRUE(asked.follow);
    EXPECT_FALSE(asked.parts);
    Operate status;
    status.parts = true;
    EXPECT_TRUE(through_agent(status).parts);
}

TEST(ProtocolCodec, RequestsForLogsKeepEveryField) {
    Operate operate = sample_operate();
    operate.action = Operate::Action::logs;
    operate.log = regroup::testing::sample_log_wish();
    EXPECT_EQ(through_agent(operate).log, operate.log);
    EXPECT_EQ(through_daemon(ReadLog{12, operate.log}).wish, operate.log);
    EXPECT_EQ(through_daemon(ReadLog{12, operate.log}).ticket, 12U);
    const LogWish begin{3, LogStream::out, "", "", 0, 50};
    EXPECT_EQ(through_daemon(ReadLog{1, begin}).wish, begin);
}

TEST(ProtocolCodec, PartOfALogKeepsEveryByteThatIsUtf8) {
    const LogPart part =
        through_agent(LogPart{12, "/runs/x.err", 4107, "\x1b[1mstep\x01 \u00fc\n", true, ""});
    EXPECT_EQ(part.ticket, 12U);
    EXPECT_EQ(part.file, "/runs/x.err");
    EXPECT_EQ(part.offset, 4107U);
    EXPECT_EQ(part.text, "\x1b[1mstep\x01 \u00fc\n");
    EXPECT_TRUE(part.more);
    EXPECT_EQ(through_agent(LogPart{1, "", 0, "", false, "no file"}).trouble, "no file");
    // Each byte that is no UTF-8 becomes three.
    EXPECT_EQ(through_agent(LogPart{1, "f", 0, std::string(kLogBytesMax, '\xff')}).text.size(),
              3 * kLogBytesMax);
}

TEST(ProtocolCodec, PartOfAnAnswerSaysThatItGoesOn) {
    EXPECT_TRUE(through_daemon(Operated{true, "{", true}).more);
    EXPECT_FALSE(through_daemon(Operated{true, "}"}).more);
}

TEST(ProtocolCodec, PositionsFurthestBehindAreKept) {
    Report report{sample_report()};
    report.report.positions.clear();
    for (std::uint32_t rank = 0; rank < 1000; ++rank) {
        report.report.positions.push_back(
            {rank, 1000 - rank / 2, rank, true, std::string(99, 'x')});
    }
    const std::vector<RankPosition> kept = through_agent(report).report.positions;
    ASSERT_THAT(kept, SizeIs(kPositionsMax));
    EXPECT_EQ(kept.front().rank, 998U);
    EXPECT_EQ(kept.front().doing, std::string(kDoingBytesMax, 'x'));
}

TEST(ProtocolCodec, AssignKeepsEveryField) {
    EXPECT_EQ(through_daemon(Assign{sample_assignment()}).assignment, sample_assignment());
}

TEST(ProtocolCodec, RoleRanksAreLeftOutWhereTheyAreTheRanks) {
    Assignment assignment = sample_assignment();
    assignment.role_first_rank = assignment.first_rank;
    assignment.role_world_size = assignment.world_size;
    EXPECT_EQ(through_daemon(Assign{assignment}).assignment, assignment);
    EXPECT_FALSE(json_of(FromDaemon(Assign{assignment})).contains("role_first_rank"));
    EXPECT_EQ(through_daemon(Assign{assignment, 1'700'000'000'123}).now_ms, 1'700'000'000'123);
}

TEST(ProtocolCodec, ShortAnswersKeepTheirFields) {
    const Stop stop = through_daemon(Stop{RoundId{9}, "enough"});
    EXPECT_EQ(stop.round, RoundId{9});
    EXPECT_EQ(stop.reason, "enough");
    EXPECT_EQ(through_daemon(Fenced{"lost"}).reason, "lost");
    EXPECT_EQ(through_daemon(Alive{RoundId{9}}).round, RoundId{9});
    const SaveStacks save = through_daemon(SaveStacks{RoundId{9}, 2, "rank 3 hangs"});
    EXPECT_EQ(save.round, RoundId{9});
    EXPECT_EQ(save.alarm, 2U);
    EXPECT_EQ(save.reason, "rank 3 hangs");
    const EndWorker end = through_daemon(EndWorker{RoundId{9}, 3, "it hung", true});
    EXPECT_TRUE(end.by_silence);
    EXPECT_FALSE(through_daemon(EndWorker{RoundId{9}, 3, "it hung"}).by_silence);
    EXPECT_EQ(end.round, RoundId{9});
    EXPECT_EQ(end.rank, 3U);
    EXPECT_EQ(end.reason, "it hung");
    EXPECT_EQ(through_daemon(Elsewhere{"b:29400"}).endpoint, "b:29400");
    EXPECT_EQ(through_daemon(Elsewhere{}).endpoint, "");
}

TEST(ProtocolCodec, PrepareKeepsEveryField) {
    for (const bool leave : {true, false}) {
        const Prepare prepare =
            through_daemon(Prepare{RoundId{9}, leave, "node c joined", leave, !leave});
        EXPECT_EQ(prepare.stale, !leave);
        EXPECT_EQ(prepare.if_running, leave);
        EXPECT_EQ(prepare.round, RoundId{9});
        EXPECT_EQ(prepare.leave, leave);
        EXPECT_EQ(prepare.reason, "node c joined");
    }
}

TEST(ProtocolCodec, RecoveredKeepsEveryField) {
    EXPECT_EQ(through_daemon(Recovered{sample_incident()}).incident, sample_incident());
    EXPECT_EQ(through_daemon(Recovered{}).incident, Incident());
    Incident cut_short = sample_incident();
    cut_short.cut_short = true;
    EXPECT_EQ(through_daemon(Recovered{cut_short}).incident, cut_short);
}

// An older daemon does not send it; then the round trains.
TEST(ProtocolCodec, RecoveryIsNotCutShortByDefault) {
    const json recovered = json_of(FromDaemon(Recovered{sample_incident()}));
    EXPECT_FALSE(recovered.contains("cut_short"));
    Verdict verdict = sample_verdict();
    verdict.goodput.cut_short = 0;
    const json closed = json_of(FromDaemon(Closed{verdict}));
    EXPECT_FALSE(closed.contains("recoveries_cut_short"));
    EXPECT_EQ(through_daemon(Closed{sample_verdict()}).verdict.goodput.lost_steps, 12U);
    EXPECT_EQ(through_daemon(Closed{verdict}).verdict, verdict);
    EXPECT_EQ(through_daemon(Closed{sample_verdict()}).verdict.goodput.cut_short, 1U);
}

TEST(ProtocolCodec, EventPageKeepsItsLinesAndItsJob) {
    const EventPage page =
        through_daemon(EventPage{"nightly", 1764105600123, "{\"a\":1}\n{\"b\":\"\\n\"}\n", true});
    EXPECT_EQ(page.job, "nightly");
    EXPECT_EQ(page.began_ms, 1764105600123);
    EXPECT_EQ(page.lines, "{\"a\":1}\n{\"b\":\"\\n\"}\n");
    EXPECT_TRUE(page.is_last);
    EXPECT_FALSE(through_daemon(EventPage{"nightly", 1, "", false}).is_last);
}

TEST(ProtocolCodec, OperatedKeepsALongText) {
    const std::string text(kStatusBytesMax, '"');
    EXPECT_EQ(through_daemon(Operated{true, text}).text, text);
    EXPECT_TRUE(through_daemon(Operated{true, text}).done);
    EXPECT_FALSE(through_daemon(Operated{false, "no"}).done);
    EXPECT_LE(encode(FromDaemon(Operated{true, std::string(1U << 20U, '\x01')})).size(),
              kFrameBytesMax);
}

TEST(ProtocolCodec, WaitingKeepsEveryField) {
    const Waiting waiting = through_daemon(sample_waiting());
    EXPECT_THAT(waiting.joined, ElementsAre("node4", "node7"));
    EXPECT_EQ(waiting.nodes_min, 3U);
    EXPECT_EQ(waiting.nodes_max, 4U);
    EXPECT_TRUE(waiting.standby);
    EXPECT_TRUE(waiting.prestart);
    EXPECT_EQ(waiting.detail, sample_waiting().detail);
}

TEST(ProtocolCodec, RefusedKeepsEveryCode) {
    for (const Errc code : {Errc::invalid_argument, Errc::deadline_exceeded, Errc::disconnected,
                            Errc::overloaded, Errc::fenced, Errc::closed, Errc::system}) {
        const Refused refused = through_daemon(Refused{code, "why"});
        EXPECT_EQ(refused.code, code);
        EXPECT_EQ(refused.reason, "why");
    }
}

TEST(ProtocolCodec, ClosedKeepsEveryOutcome) {
    for (const Outcome outcome : {Outcome::succeeded, Outcome::failed, Outcome::stopped}) {
        Verdict verdict = sample_verdict();
        verdict.outcome = outcome;
        EXPECT_EQ(through_daemon(Closed{verdict}).verdict, verdict);
        verdict.failure.reset();
        EXPECT_EQ(through_daemon(Closed{verdict}).verdict, verdict);
    }
}

TEST(ProtocolCodec, LargestRoundsAndRanksSurvive) {
    Assignment assignment = sample_assignment();
    assignment.round = RoundId{std::uint64_t{1} << 53U};
    assignment.first_rank = 4294967294U;
    assignment.world_size = 4294967295U;
    assignment.master_port = 65535;
    EXPECT_EQ(through_daemon(Assign{assignment}).assignment, assignment);
}

// ---- Tolerance.

TEST(ProtocolCodec, UnknownFieldsAreIgnored) {
    json join = json_of(FromAgent(sample_join()));
    join["colour"] = {{"nested", {1, 2, 3}}};
    join["failure"]["colour"] = "red";
    const Result<FromAgent> decoded = decode_from_agent(join.dump());
    ASSERT_TRUE(decoded) << error_of(decoded);
    expect_same(std::get<Join>(*decoded), sample_join());

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
