// SPDX-License-Identifier: Apache-2.0
//
// The steps of an elastic program, as a daemon hears of them from a real launcher.
#include <optional>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "daemon_harness.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/program.h"

namespace regroup::testing {
namespace {

using namespace rendezvous;  // NOLINT: every message.

constexpr std::uint64_t kBatch = 16;  // Of the example.

/// The daemon of one node with two workers.
class OneNode {
   public:
    explicit OneNode(Loop& loop)
        : listener_(loop),
          job_(
              {{REGROUP_PROGRAM, "run", "--nnodes=1:2", "--rdzv-backend=c10d", "--nproc-per-node=2",
                "--rdzv-endpoint=127.0.0.1:" + std::to_string(listener_.port()),
                "--rdzv-conf=is_host=false", "--heartbeat-timeout=0.3", "--log-dir=/dev/null",
                ELASTIC_PROGRAM, "--steps=1000000", "--step-ms=1"},
               {},
               folder_.path()}),
          peer_(listener_.accept()) {}

    std::optional<FromAgent> next() {
        const auto payload = peer_.next_payload();
        if (!payload) {
            return std::nullopt;
        }
        Result<FromAgent> message = protocol::decode_from_agent(*payload);
        EXPECT_TRUE(message) << message.error().detail;
        return message ? std::optional(std::move(*message)) : std::nullopt;
    }
    void say(const FromDaemon& message) {
        EXPECT_TRUE(peer_.send(protocol::make_frame(protocol::encode(message))));
    }
    void begin_round() {
        const auto join = next();
        ASSERT_TRUE(join && std::holds_alternative<Join>(*join)) << job_.output();
        Assignment assignment;
        assignment.round = RoundId{1};
        assignment.world_size = assignment.role_world_size = 2;
        assignment.master_addr = "127.0.0.1";
        assignment.master_port = std::get<Join>(*join).report.store_port;
        assignment.store_key = std::get<Join>(*join).offer.store_key;
        say(Assign{assignment});
    }
    /// The next telemetry with a value, which follows the first step; answers the reports before
    /// it.
    std::optional<Telemetry> await_telemetry() {
        while (const auto message = next()) {
            if (const auto* report = std::get_if<Report>(&*message)) {
                say(Alive{RoundId{1}});
                if (report->telemetry && !report->telemetry->values.empty()) {
                    return report->telemetry;
                }
            }
        }
        ADD_FAILURE() << job_.output();
        return std::nullopt;
    }
    std::optional<int> end() {
        Verdict verdict;
        verdict.exit_code = kExitRequeue;
        say(Closed{verdict});
        return job_.wait(std::chrono::seconds(20));
    }

   private:
    TemporaryDirectory folder_;
    Listener listener_;
    Program job_;
    Peer peer_;
};

TEST(AgentTelemetry, StepsTimesAndLossOfARunningJobReachTheDaemon) {
    Loop loop;
    OneNode node(loop);
    ASSERT_NO_FATAL_FAILURE(node.begin_round());
    const auto first = node.await_telemetry();
    const auto second = node.await_telemetry();
    ASSERT_TRUE(first && second);
    EXPECT_GT(first->pid, 1U);
    EXPECT_EQ(second->pid, first->pid);
    for (const auto& telemetry : {first, second}) {
        EXPECT_GT(telemetry->counters.steps, 0U);
        EXPECT_NEAR(static_cast<double>(telemetry->counters.samples),
                    static_cast<double>(kBatch * telemetry->counters.steps), kBatch)
            << "read between the two";
        ASSERT_EQ(telemetry->values.size(), 1U);
        EXPECT_EQ(telemetry->values[0].name, "loss");
        EXPECT_GE(telemetry->values[0].value, 0);
    }
    EXPECT_GT(second->counters.steps, first->counters.steps);
    EXPECT_GE(second->counters.compute,
              std::chrono::milliseconds(second->counters.steps));  // --step-ms=1
    EXPECT_EQ(node.end(), kExitRequeue);
}

}  // namespace
}  // namespace regroup::testing
