// SPDX-License-Identifier: Apache-2.0
//
// Messages stay within their limits: text is cut, frames are bounded, and routine ones are small.
#include <algorithm>
#include <string>

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
using regroup::testing::sample_join;
using regroup::testing::sample_report;
using regroup::testing::sample_verdict;
using regroup::testing::sample_waiting;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::SizeIs;

// ---- Text from people, workers and unknown peers.

TEST(ProtocolLimits, OutputThatIsNotUtf8IsCarriedWithReplacements) {
    Report report{sample_report()};
    report.report.failure->last_output = "caf\xE9 \xFF\xFE end \x01";
    const std::string output = through(report).report.failure->last_output;
    EXPECT_THAT(output, AllOf(HasSubstr("caf\xEF\xBF\xBD"), HasSubstr(" end \x01")));
}

TEST(ProtocolLimits, LongOutputKeepsItsEndAndLongSentencesTheirBeginning) {
    Report report{sample_report()};
    report.report.failure->last_output = std::string(100000, 'x') + "the last word";
    report.report.failure->log_file = "/first" + std::string(100000, 'x');
    const WorkerFailure failure = *through(report).report.failure;
    EXPECT_THAT(failure.last_output, AllOf(SizeIs(kOutputBytesMax), HasSubstr("the last word")));
    EXPECT_THAT(failure.log_file, AllOf(SizeIs(kSentenceBytesMax), HasSubstr("/first")));
}

TEST(ProtocolLimits, LongTextIsCutBetweenCharacters) {
    std::string snowmen;
    while (snowmen.size() < kOutputBytesMax * 2) {
        snowmen += "\xE2\x98\x83";
    }
    Report report{sample_report()};
    report.report.failure->last_output = snowmen;
    const std::string tail = through(report).report.failure->last_output;
    EXPECT_EQ(tail.substr(0, 3), "\xE2\x98\x83");
    EXPECT_EQ(tail.size() % 3, 0U);
    const std::string head = through(Leave{snowmen}).reason;
    EXPECT_EQ(head.substr(head.size() - 3), "\xE2\x98\x83");
    EXPECT_GT(head.size(), kSentenceBytesMax - 3);
}

TEST(ProtocolLimits, MeasuredTimesBeyondTheLongestWaitAreCutAndNotRefused) {
    constexpr Duration kYear = std::chrono::hours(24 * 365);
    Report report{sample_report()};
    report.report.at_work = report.report.ended_ago = kYear;
    report.report.hang = Hang{1, "", false, kYear};
    report.report.positions = {{}};
    report.report.positions[0].silent = kYear;
    const NodeReport back = through(report).report;
    EXPECT_EQ(back.at_work, kWaitMax);
    EXPECT_EQ(back.ended_ago, kWaitMax);
    EXPECT_EQ(back.hang->stood, kWaitMax);
    EXPECT_EQ(back.positions[0].silent, kWaitMax);
    const Resumed resumed = through(Resumed{RoundId{1}, 1, kYear, kYear, kYear, kYear});
    EXPECT_EQ(resumed.ago, kWaitMax);
    EXPECT_EQ(resumed.first_step, kWaitMax);
}

TEST(ProtocolLimits, NoMessageOutgrowsAFrame) {
    // A control character takes six bytes in JSON: nothing takes more.
    const std::string worst(1U << 20U, '\x01');
    const std::string name(kNameBytesMax, 'n');
    WorkerFailure failure = sample_failure();
    failure.node = failure.host = failure.time = std::string(kNameBytesMax, '\x01');
    failure.start_error = failure.last_output = failure.log_file = worst;
    failure.evidence = failure.error_message = failure.error_file = worst;
    Join join = sample_join();
    join.job = join.node = join.offer.name = join.offer.role = join.offer.address = name;
    join.policy.program = worst;
    join.offer.other_addresses.assign(1000, name);
    join.report.failure = failure;
    join.report.draining = worst;
    join.report.hang = Hang{1, worst};
    const std::uint64_t large = std::uint64_t{1} << 53U;
    join.report.positions.assign(
        5000, {4294967295U, large, large, true, std::string(100, worst.front())});
    join.report.broken_links.assign(5000,
                                    {4294967295U, 4294967295U, std::string(1000, worst.front())});
    for (int code = 1; code < 256; ++code) {
        join.policy.on_exit[code] = Reaction::replace_node;
    }
    EXPECT_LE(encode(FromAgent(join)).size(), kFrameBytesMax);
    EXPECT_TRUE(decode_from_agent(encode(FromAgent(join))));
    EXPECT_LE(encode(FromAgent(Leave{worst})).size(), kFrameBytesMax);

    Assignment assignment = sample_assignment();
    assignment.master_addr = name;
    assignment.reason = worst;
    Verdict verdict = sample_verdict();
    verdict.failure = failure;
    verdict.author = worst;
    verdict.reason = worst;
    Waiting waiting = sample_waiting();
    waiting.joined.assign(20000, name);
    waiting.detail = worst;
    for (const FromDaemon& message :
         {FromDaemon(Assign{assignment}), FromDaemon(Stop{RoundId{1}, worst}),
          FromDaemon(Fenced{worst}), FromDaemon(waiting), FromDaemon(Refused{Errc::system, worst}),
          FromDaemon(Closed{verdict}), FromDaemon(Prepare{RoundId{1}, true, worst}),
          FromDaemon(Operated{true, worst}),
          FromDaemon(Recovered{Incident{.cause = worst, .decision = worst}})}) {
        EXPECT_LE(encode(message).size(), kFrameBytesMax) << message.index();
        EXPECT_TRUE(decode_from_daemon(encode(message))) << message.index();
    }
}

TEST(ProtocolLimits, DecodedMessageFitsAFrameWhenEncodedAgain) {
    // The text of one agent reaches all others, so re-encoding must not make it grow.
    json object = json::parse(encode(FromAgent(Report{sample_report()})));
    object["failure"]["start_error"] = std::string(40000, '\x01');
    object["failure"]["host"] = std::string(3000, 'h');
    const Result<FromAgent> decoded = decode_from_agent(object.dump());
    ASSERT_TRUE(decoded) << decoded.error().detail;
    const WorkerFailure& failure = *std::get<Report>(*decoded).report.failure;
    EXPECT_THAT(failure.start_error, SizeIs(kSentenceBytesMax));
    EXPECT_THAT(failure.host, SizeIs(kNameBytesMax));
}

// ---- Size.

std::size_t framed(const std::string& payload) {
    return make_frame(payload).size();
}

TEST(ProtocolLimits, RendezvousTakesHalfAKilobyteWhateverTheWorld) {
    for (const std::uint32_t world : {1U, 16U, 1000U, 100000U}) {
        Join join;
        join.job = "20261121-100526-9f3c";
        join.node = "node1234-1234567-9f3c01aa";
        join.policy.nodes_min = std::max(1U, world / 8);
        join.policy.nodes_max = std::max(1U, world / 8);
        join.policy.program = "train_model";
        join.offer.name = "node1234";
        join.offer.workers = 8;
        join.report.store_port = 41231;
        Assignment assignment;
        assignment.round = RoundId{1};
        assignment.group_world_size = join.policy.nodes_max;
        assignment.group_rank = assignment.group_world_size - 1;
        assignment.world_size = world;
        assignment.first_rank = world - 1;
        assignment.role_first_rank = assignment.first_rank;
        assignment.role_world_size = world;
        assignment.master_addr = "172.16.100.200";
        assignment.master_port = 41231;
        assignment.reason = std::to_string(join.policy.nodes_max) + " nodes joined";
        EXPECT_LE(framed(encode(FromAgent(join))) + framed(encode(FromDaemon(Assign{assignment}))),
                  512U)
            << encode(FromAgent(join)) << encode(FromDaemon(Assign{assignment}));
    }
}

// Workers write their steps into shared memory, and may write anything.
TEST(ProtocolLimits, AnyStepOfAWorkerIsSentAsANumberThatThePeerAccepts) {
    constexpr std::uint64_t kAny = std::numeric_limits<std::uint64_t>::max();
    constexpr std::uint64_t kMost = std::uint64_t{1} << 53U;
    Report report;
    report.report.step = report.report.held_step = report.report.ended_step = kAny;
    report.report.positions = {{0, kAny, kAny, false, ""}};
    const NodeReport heard = through(report).report;
    EXPECT_EQ(heard.step, kMost);
    EXPECT_EQ(heard.held_step, kMost);
    EXPECT_EQ(heard.ended_step, kMost);
    ASSERT_EQ(heard.positions.size(), 1U);
    EXPECT_EQ(heard.positions[0].step, kMost);
    EXPECT_EQ(heard.positions[0].operations, kMost);
    EXPECT_EQ(through(Resumed{RoundId{1}, kAny}).step, kMost);
    Closed closed;
    closed.verdict.goodput.lost_steps = 2 * kMost;
    EXPECT_EQ(through(closed).verdict.goodput.lost_steps, kMost);
}

TEST(ProtocolLimits, HeartbeatAndItsAnswerAreSmall) {
    Report report;
    report.report.round = RoundId{1000};
    report.report.state = NodeState::running;
    report.report.store_port = 41231;
    EXPECT_LE(framed(encode(FromAgent(report))), 80U);
    EXPECT_LE(framed(encode(FromDaemon(Alive{RoundId{1000}}))), 40U);
}

}  // namespace
}  // namespace regroup::protocol
