// SPDX-License-Identifier: Apache-2.0
//
// The telemetry that a daemon keeps from reports.
#include <memory>
#include <string>
#include <utility>

#include <gmock/gmock.h>

#include "daemon_harness.h"
#include "rendezvous/server/job_table.h"

namespace regroup::rendezvous {
namespace {

using boost::asio::ip::tcp;
using std::chrono::seconds;

class DaemonTelemetry : public ::testing::Test {
   protected:
    DaemonTelemetry() {
        for (const auto& [session, name] : {std::pair(a, "a"), std::pair(b, "b")}) {
            table.handle(session, join_of("j", name, 2));
        }
        for (const auto& session : {a, b}) {
            table.handle(session, running(kRound));
        }
    }

    std::shared_ptr<Session> session() {
        auto made = Session::create(tcp::socket(io, tcp::v4()), std::weak_ptr<SessionOwner>(), 256,
                                    seconds(10));
        made->peer = {"10.0.0.2:1", "10.0.0.2"};
        return made;
    }
    static Report told(RoundId round, std::uint64_t steps) {
        Report report = running(round);
        report.telemetry = Telemetry{.pid = 7,
                                     .counters = {.steps = steps},
                                     .values = {{"loss", 1.0 / static_cast<double>(steps)}}};
        return report;
    }

    static constexpr RoundId kRound{1};
    boost::asio::io_context io;
    SteadyClock clock;
    DaemonCounters counters;
    PeerLog peers_log{clock, counters, [](const std::string&) {}};
    JobTable table{io, clock, {}, peers_log, [](const std::string&) {}};
    const std::shared_ptr<Session> a = session();
    const std::shared_ptr<Session> b = session();
};

TEST_F(DaemonTelemetry, LastTelemetryOfAJobIsKept) {
    EXPECT_EQ(table.find("k"), nullptr);
    ASSERT_NE(table.find("j"), nullptr);
    EXPECT_FALSE(table.find("j")->telemetry.last())
        << "nothing is known of a program without a loop";
    table.handle(a, told(kRound, 10));
    table.handle(a, told(kRound, 30));
    table.handle(a, running(kRound));  // Nothing has changed.
    ASSERT_TRUE(table.find("j")->telemetry.last());
    EXPECT_EQ(*table.find("j")->telemetry.last(), *told(kRound, 30).telemetry);
    EXPECT_EQ(table.find("j")->telemetry.total().steps, 30U);
    EXPECT_EQ(table.find("j")->telemetry.recent().steps, 20U);
    EXPECT_EQ(counters.refusals.at("refusal"), 0U);
}

TEST_F(DaemonTelemetry, ReportOfAnotherRoundTellsNothing) {
    table.handle(a, told(RoundId::none, 10));
    table.handle(a, told(RoundId{2}, 10));
    EXPECT_FALSE(table.find("j")->telemetry.last());
}

TEST_F(DaemonTelemetry, HeartbeatWithTelemetryIsRoutine) {
    table.handle(a, told(kRound, 10));
    const std::uint64_t events = table.find("j")->history.last_number();
    for (std::uint64_t steps = 11; steps < 20; ++steps) {
        table.handle(a, told(kRound, steps));
    }
    EXPECT_EQ(table.find("j")->history.last_number(), events);
}

}  // namespace
}  // namespace regroup::rendezvous
