// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulation.h"

#include <set>
#include <string>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace regroup::simulation {
namespace {

using std::chrono::minutes;

Options options_of(std::uint64_t seed, Duration safety) {
    Options options;
    options.seed = seed;
    options.safety = safety;
    return options;
}

TEST(Simulation, SameSeedReplaysExactly) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
        const RunReport first = run_seed(options_of(seed, minutes(10)));
        const RunReport second = run_seed(options_of(seed, minutes(10)));
        EXPECT_EQ(first.hash, second.hash) << seed;
        EXPECT_EQ(first.steps, second.steps) << seed;
    }
}

TEST(Simulation, TracingDoesNotChangeTheRun) {
    for (std::uint64_t seed = 1; seed <= 5; ++seed) {
        Options told = options_of(seed, minutes(10));
        told.trace_lines = 100;
        const RunReport report = run_seed(told);
        EXPECT_EQ(report.hash, run_seed(options_of(seed, minutes(10))).hash) << seed;
        EXPECT_EQ(report.trace.size(), 100U);
    }
}

TEST(Simulation, DifferentSeedsAreDifferentRuns) {
    std::set<std::uint64_t> hashes;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
        hashes.insert(run_seed(options_of(seed, minutes(1))).hash);
    }
    EXPECT_EQ(hashes.size(), 20U);
}

TEST(Simulation, FailingRunEndsItsTraceWithTheViolation) {
    for (std::uint64_t seed = 1; seed < 40; ++seed) {
        Options options = options_of(seed, minutes(10));
        options.swallow = [](const rendezvous::FromDaemon& message) {
            return std::holds_alternative<rendezvous::Assign>(message);
        };
        const RunReport report = run_seed(options);
        if (report.violation) {
            ASSERT_FALSE(report.trace.empty());
            EXPECT_NE(report.trace.back().find(*report.violation), std::string::npos);
            return;
        }
    }
    FAIL() << "no seed failed";
}

// Every kind of fault and of network behaviour comes up in the first seeds.
TEST(Simulation, SeedsCoverAllKindsOfFaults) {
    std::set<FaultKind> kinds;
    int lossy = 0;
    int reordering = 0;
    int drifting = 0;
    int faultless = 0;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const Plan plan = Plan::from_seed(seed);
        kinds.insert(plan.faults.begin(), plan.faults.end());
        lossy += plan.network.loss > 0 ? 1 : 0;
        reordering += plan.network.reorder ? 1 : 0;
        drifting += plan.drift_ppm_max > 0 ? 1 : 0;
        faultless += plan.faults.empty() ? 1 : 0;
    }
    EXPECT_EQ(kinds.size(), kFaultKinds);
    EXPECT_GT(lossy, 10);
    EXPECT_GT(reordering, 10);
    EXPECT_GT(drifting, 10);
    EXPECT_GT(faultless, 0);
}

TEST(Simulation, SeedsCoverAllKindsOfDaemonDurability) {
    std::set<Durability> kinds;
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        kinds.insert(Plan::from_seed(seed).durability);
    }
    EXPECT_EQ(kinds.size(), 3U);
}

// Seeds that found a defect once; docs/testing.md lists them. Each runs for a full hour.
TEST(Simulation, SeedsThatOnceFailedHold) {
    for (const std::uint64_t seed :
         {2U,        10U,       14U,        15U,        19U,        26U,       40U,       47U,
          135U,      160U,      164U,       299U,       304U,       386U,      469U,      1249U,
          2385U,     3137U,     7414U,      11058U,     15101U,     20314U,    23U,       426U,
          11U,       1705U,     2557U,      1015853U,   1017699U,   2000378U,  518U,      23004064U,
          23002354U, 26000351U, 50011972U,  50027751U,  63008130U,  65001278U, 67002063U, 67003628U,
          68007437U, 73001966U, 80004100U,  83001521U,  85005497U,  87001446U, 89002196U, 91004332U,
          91006457U, 92009710U, 101026423U, 121006163U, 152002849U, 1009617U,  2009525U,  1008314U,
          2008098U,  2009641U,  3004287U,   5004139U,   6024699U,   6029070U,  700186U}) {
        const RunReport report = run_seed(options_of(seed, std::chrono::hours(1)));
        EXPECT_FALSE(report.violation.has_value()) << "seed " << seed << ": " << *report.violation;
    }
}

// ---- Whole runs with a daemon that withholds messages.

template <class Message>
std::string violation_without() {
    for (std::uint64_t seed = 1; seed < 40; ++seed) {
        Options options;
        options.seed = seed;
        options.safety = minutes(10);
        options.swallow = [](const rendezvous::FromDaemon& message) {
            return std::holds_alternative<Message>(message);
        };
        const RunReport report = Simulation(options).run();
        if (report.violation) {
            return *report.violation;
        }
    }
    return "";
}

TEST(Sabotage, DaemonThatNeverSendsStopIsDetected) {
    EXPECT_THAT(violation_without<rendezvous::Stop>(), testing::HasSubstr("which is over, for"));
}

TEST(Sabotage, DaemonThatNeverSendsAssignIsDetected) {
    EXPECT_NE(violation_without<rendezvous::Assign>(), "");
}

TEST(Sabotage, DaemonThatNeverSendsClosedIsDetected) {
    EXPECT_NE(violation_without<rendezvous::Closed>(), "");
}

TEST(EventQueue, EarliestEventComesFirstAndEqualTimesKeepTheirOrder) {
    EventQueue queue;
    queue.push(kStart + minutes(2), EventKind::tick, 3);
    queue.push(kStart + minutes(1), EventKind::tick, 1);
    queue.push(kStart + minutes(1), EventKind::tick, 2);
    for (std::uint32_t subject = 1; subject <= 3; ++subject) {
        EXPECT_EQ(queue.pop().subject, subject);
    }
    EXPECT_TRUE(queue.empty());
}

}  // namespace
}  // namespace regroup::simulation
