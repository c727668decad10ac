// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/schedule.h"

#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace regroup::chaos {
namespace {

constexpr std::uint32_t kNodes = 5;

SchedulePlan plan_of(std::uint64_t seed) {
    return {.seed = seed,
            .lasts = std::chrono::minutes(10),
            .nodes = kNodes,
            .standbys = 1,
            .ahead = true,
            .snapshots = true};
}

TEST(Schedule, SeedDeterminesTheSchedule) {
    EXPECT_EQ(make_schedule(plan_of(1)), make_schedule(plan_of(1)));
    EXPECT_NE(make_schedule(plan_of(1)), make_schedule(plan_of(2)));
}

TEST(Schedule, EveryKindOfBreakComesUpWithinTenMinutesAndIsDescribed) {
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        std::map<FaultKind, int> seen;
        for (const Fault& fault : make_schedule(plan_of(seed))) {
            ++seen[fault.kind];
            EXPECT_THAT(describe(fault), HasSubstr(" s  "));
        }
        EXPECT_EQ(seen.size(), kFaultKinds) << "seed " << seed;
        for (const auto& [kind, count] : seen) {
            EXPECT_GE(count, 2) << to_string(kind) << ", seed " << seed;
        }
    }
}

TEST(Schedule, BreaksFallBetweenTheStartAndTheEndOfTheJob) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        const SchedulePlan plan = plan_of(seed);
        milliseconds last{};
        for (const Fault& fault : make_schedule(plan)) {
            EXPECT_GE(fault.at, plan.first);
            EXPECT_GE(fault.at, last);
            EXPECT_LE(fault.at + fault.lasts, plan.lasts - plan.calm);
            last = fault.at;
        }
    }
}

TEST(Schedule, TwoNodesAreAlwaysUndisturbedAndNoNodeIsBrokenTwiceAtOnce) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        const std::vector<Fault> faults = make_schedule(plan_of(seed));
        for (const Fault& now : faults) {
            std::set<std::uint32_t> broken;
            for (const Fault& fault : faults) {
                const bool is_open = fault.at <= now.at && now.at < fault.at + fault.lasts;
                const bool is_aimed = hits_node(fault.kind) && !aims_at_standby(fault.kind);
                if (is_aimed && (is_open || fault == now)) {
                    EXPECT_TRUE(broken.insert(fault.node).second) << describe(fault);
                    EXPECT_LT(fault.node, kNodes);
                }
            }
            EXPECT_LE(broken.size(), kNodes - 2);
        }
    }
}

TEST(Schedule, TakerIsKilledSoonAfterANodeLossAndAheadWorkersOnlyIfThereAreAny) {
    for (std::uint64_t seed = 1; seed <= 50; ++seed) {
        SchedulePlan plan = plan_of(seed);
        const Fault* last_end = nullptr;
        for (const auto faults = make_schedule(plan); const Fault& fault : faults) {
            EXPECT_EQ(aims_at_standby(fault.kind), fault.node == Fault::kStandby);
            if (fault.kind == FaultKind::kill_taker) {
                ASSERT_NE(last_end, nullptr);
                EXPECT_LE(fault.at - last_end->at, milliseconds(300));
            } else if (ends_node(fault.kind)) {
                last_end = &fault;
            }
        }
        plan.ahead = false;
        for (const Fault& fault : make_schedule(plan)) {
            EXPECT_NE(fault.kind, FaultKind::kill_standby_worker) << describe(fault);
        }
    }
}

TEST(Schedule, WorkersAreOftenKilledWhileTheRoundEndsForAnother) {
    constexpr milliseconds kWhile(1500);
    int soon = 0;
    milliseconds last{};
    for (const Fault& fault : make_schedule(plan_of(1))) {
        if (fault.kind == FaultKind::kill_worker) {
            soon += fault.at - last <= kWhile ? 1 : 0;
            last = fault.at;
        }
    }
    EXPECT_GE(soon, 5);
}

TEST(Traits, EveryFormAndNumberOfStandbysIsDrawn) {
    std::set<std::pair<JobForm, std::uint32_t>> seen;
    for (std::uint64_t seed = 1; seed <= 200; ++seed) {
        const JobTraits traits = draw_traits(seed);
        EXPECT_EQ(traits.form, draw_traits(seed).form);
        seen.insert({traits.form, traits.standbys});
    }
    EXPECT_EQ(seen.size(), 8U);
}

TEST(Schedule, OnlyWhereAgentsKeepTheStateAreTwoNodesLostAtOnceAndAllWorkersKilled) {
    for (const bool snapshots : {false, true}) {
        int pairs = 0;
        int kills = 0;
        for (std::uint64_t seed = 1; seed <= 10; ++seed) {
            SchedulePlan plan = plan_of(seed);
            plan.snapshots = snapshots;
            milliseconds last{};
            for (const Fault& fault : make_schedule(plan)) {
                kills += fault.kind == FaultKind::kill_workers ? 1 : 0;
                if (fault.kind == FaultKind::kill_node) {
                    pairs += fault.at == last ? 1 : 0;
                    last = fault.at;
                }
            }
        }
        EXPECT_EQ(pairs > 10, snapshots);
        EXPECT_EQ(kills > 10, snapshots);
    }
}

TEST(Schedule, OnlyRequestedKindsAreScheduled) {
    SchedulePlan plan = plan_of(3);
    plan.kinds = {FaultKind::cut_link, FaultKind::part_pair};
    const std::vector<Fault> faults = make_schedule(plan);
    EXPECT_THAT(faults, Not(IsEmpty()));
    for (const Fault& fault : faults) {
        EXPECT_TRUE(fault.kind == FaultKind::cut_link || fault.kind == FaultKind::part_pair);
        EXPECT_TRUE(fault.kind != FaultKind::part_pair || fault.other != fault.node);
    }
}

}  // namespace
}  // namespace regroup::chaos
