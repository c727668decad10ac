// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/placement_machines.h"

namespace regroup::agent {
namespace {

constexpr CpusPerRank kAuto{};

Result<Placement> divide(CpusPerRank cpus_per_rank, int rank_count, const Topology& topology,
                         const Gpus& gpus = {}, NumaBinding binding = NumaBinding::none) {
    return plan_placement(
        {.rank_count = rank_count, .numa_binding = binding, .cpus_per_rank = cpus_per_rank},
        topology, gpus);
}

TEST(CpusPerRankTest, AutoGivesNoMoreCoresThanTheQuotaOfTheCgroupAllows) {
    const Topology topology = machine(kFourNodes);  // 16 cores.
    PlacementRequest request{.rank_count = 2, .cpus_per_rank = kAuto, .cpu_quota = 3.5};
    const auto placed = plan_placement(request, topology, {});
    EXPECT_THAT(lists(placed), ElementsAre("0-3", "16-19"));
    EXPECT_THAT(threads(*placed), ElementsAre(2, 2));
    ASSERT_EQ(placed->notes.size(), 1U);
    EXPECT_THAT(placed->notes[0],
                saying("--cpus-per-rank auto: 2 cores for each worker", "3.5 of 32 CPUs"));

    request.cpu_quota = 1.5;
    request.rank_count = 4;
    const auto crowded = plan_placement(request, topology, {});
    EXPECT_THAT(lists(crowded), ElementsAre("", "", "", ""));
    EXPECT_THAT(threads(*crowded), ElementsAre(1, 1, 1, 1));
    ASSERT_EQ(crowded->notes.size(), 1U);
    EXPECT_THAT(crowded->notes[0], HasSubstr("no cores of their own"));

    request.cpu_quota = 64;
    EXPECT_THAT(plan_placement(request, topology, {})->notes, IsEmpty());
}

TEST(CpusPerRankTest, NumberAboveTheQuotaIsKeptWithANoticeAndFewerThreads) {
    const PlacementRequest request{
        .rank_count = 2, .cpus_per_rank = CpusPerRank{4}, .cpu_quota = 2.0};
    const auto placed = plan_placement(request, machine(kFourNodes), {});
    EXPECT_THAT(lists(placed), ElementsAre("0-7", "16-23"));
    EXPECT_THAT(threads(*placed), ElementsAre(1, 1));
    ASSERT_EQ(placed->notes.size(), 1U);
    EXPECT_THAT(placed->notes[0], HasSubstr("--cpus-per-rank 4: "));
}

TEST(CpusPerRankTest, AutoDividesTheCoresAndNeverACore) {
    EXPECT_THAT(lists(divide(kAuto, 2, machine(kSmall))), ElementsAre("0", "1"));
    const auto four = divide(kAuto, 4, machine(kFourNodesInterleaved));
    EXPECT_THAT(lists(four), ElementsAre("0-3,16-19", "4-7,20-23", "8-11,24-27", "12-15,28-31"));
    EXPECT_THAT(threads(*four), ElementsAre(4, 4, 4, 4));
    EXPECT_THAT(four->ranks[3].numa_nodes, ElementsAre(3));
    EXPECT_THAT(four->notes, IsEmpty());
}

TEST(CpusPerRankTest, RankMayHaveSeveralWholeNodes) {
    const auto two = divide(kAuto, 2, machine(kFourNodes));
    EXPECT_THAT(lists(two), ElementsAre("0-15", "16-31"));
    EXPECT_THAT(two->ranks[1].numa_nodes, ElementsAre(2, 3));
    EXPECT_THAT(lists(divide(kAuto, 1, machine(kFourNodes))), ElementsAre("0-31"));
}

TEST(CpusPerRankTest, RanksStayInsideANodeWhereItDivides) {
    EXPECT_THAT(lists(divide(kAuto, 3, machine("numa:2 core:4 pu:1"))),
                ElementsAre("0-1", "2-3", "4-5"));
    EXPECT_THAT(lists(divide(kAuto, 3, machine("numa:2 core:3 pu:1"))),
                ElementsAre("0-1", "2-3", "4-5"))
        << "two cores each cannot stay inside nodes of three";
    EXPECT_THAT(lists(divide(kAuto, 3, machine("numa:2 core:4 pu:1", {0, 1, 4, 5, 6, 7}))),
                ElementsAre("0-1", "4-5", "6-7"))
        << "equal runs do not fit, but the second node has room for two";
}

TEST(CpusPerRankTest, AutoStaysWithinTheMask) {
    const auto placement = divide(kAuto, 2, machine(kFourNodes, {1, 2, 3, 30}));
    EXPECT_THAT(lists(placement), ElementsAre("1", "30"));
    EXPECT_THAT(threads(*placement), ElementsAre(1, 1));
    EXPECT_THAT(lists(divide(kAuto, 2, machine(kFourNodes, {1, 2, 3}))), ElementsAre("1", "2-3"));
}

TEST(CpusPerRankTest, AutoIsNextToTheGpu) {
    const auto placement = divide(kAuto, 4, machine("numa:2 core:4 pu:1"), gpus_on({1, 0, 1, 0}));
    EXPECT_THAT(lists(placement), ElementsAre("4-5", "0-1", "6-7", "2-3"));
    EXPECT_EQ(placement->ranks[0].gpu, "0 (0000:10:00.0)");
    EXPECT_THAT(placement->notes, IsEmpty());
}

TEST(CpusPerRankTest, AutoGivesEachGpuEquallyManyCoresOfItsNode) {
    EXPECT_THAT(lists(divide(kAuto, 3, machine("numa:2 core:4 pu:1"), gpus_on({1, 1, 0}))),
                ElementsAre("4-5", "6-7", "0-1"));
    EXPECT_THAT(lists(divide(kAuto, 2, machine("numa:2 core:4 pu:1"), gpus_on({1, 1}))),
                ElementsAre("4-5", "6-7"));
}

TEST(CpusPerRankTest, GpuWithAnUnknownNodeIsNotPutOnNodeZero) {
    EXPECT_THAT(lists(divide(kAuto, 2, machine("numa:2 core:4 pu:1"), gpus_on({-1, -1}))),
                ElementsAre("0-3", "4-7"));
}

TEST(CpusPerRankTest, TooFewCoresNextToTheGpusIsNoted) {
    const auto placement =
        divide(CpusPerRank{3}, 2, machine("numa:2 core:4 pu:1"), gpus_on({1, 1}));
    EXPECT_THAT(lists(placement), ElementsAre("0-2", "4-6"));
    EXPECT_THAT(placement->notes, ElementsAre(HasSubstr("not every worker's cores are next to")));
}

TEST(CpusPerRankTest, MoreRanksThanGpusAreFineWithoutNumaBinding) {
    const auto placement = divide(kAuto, 2, machine(kSmall), gpus_on({0}));
    EXPECT_THAT(lists(placement), ElementsAre("0", "1"));
    EXPECT_EQ(placement->ranks[0].gpu, "");
}

TEST(CpusPerRankTest, MoreRanksThanCoresAreNotBound) {
    const auto placement = divide(kAuto, 3, machine(kSmall));
    EXPECT_THAT(lists(placement), ElementsAre("", "", ""));
    EXPECT_THAT(threads(*placement), ElementsAre(1, 1, 1));
    EXPECT_THAT(placement->notes,
                ElementsAre("--cpus-per-rank auto: 3 workers on 2 physical cores get no cores of "
                            "their own, and one thread each"));
}

TEST(CpusPerRankTest, NumberGivesThatManyWholeCores) {
    const auto placement = divide(CpusPerRank{3}, 2, machine(kFourNodesInterleaved));
    EXPECT_THAT(lists(placement), ElementsAre("0-2,16-18", "8-10,24-26"))
        << "spread over the nodes, and inside them";
    EXPECT_THAT(threads(*placement), ElementsAre(3, 3));
}

TEST(CpusPerRankTest, TooLargeNumberIsAnError) {
    EXPECT_THAT(lists(divide(CpusPerRank{2}, 2, machine(kSmall))),
                ElementsAre("--cpus-per-rank 2: 2 workers would need more than the 2 physical "
                            "cores that this process may use"));
    EXPECT_THAT(
        lists(divide(CpusPerRank{3}, 2, machine(kFourNodes), gpus_on({1, 1}), NumaBinding::node)),
        ElementsAre("--cpus-per-rank 3: 2 workers would need more than the 4 physical "
                    "cores that this process may use within --numa-binding node"));
    EXPECT_THAT(lists(divide(CpusPerRank{2147483647}, 2, machine(kSmall))),
                ElementsAre(HasSubstr("would need more than")));
}

TEST(CpusPerRankTest, BothFlagsDivideTheSetsOfTheBinding) {
    const Topology topology = machine(kFourNodes);
    const Gpus gpus = gpus_on({1, 0, 1});
    EXPECT_THAT(lists(divide(kAuto, 3, topology, gpus, NumaBinding::node)),
                ElementsAre("8-11", "0-7", "12-15"));
    EXPECT_THAT(lists(divide(CpusPerRank{1}, 3, topology, gpus, NumaBinding::node)),
                ElementsAre("8-9", "0-1", "10-11"));
    EXPECT_THAT(lists(divide(CpusPerRank{1}, 3, topology, gpus, NumaBinding::exclusive)),
                ElementsAre("8-9", "0-1", "12-13"));
    EXPECT_THAT(lists(divide(CpusPerRank{2}, 3, topology, gpus, NumaBinding::socket)),
                ElementsAre("8-11", "0-3", "12-15"));
    EXPECT_THAT(
        lists(divide(CpusPerRank{2}, 3, machine(kComplexes), {}, NumaBinding::core_complex)),
        ElementsAre("0-1", "4-5", "2-3"));
}

TEST(CpusPerRankTest, SetWithTooFewCoresKeepsItsBinding) {
    const auto placement =
        divide(kAuto, 3, machine(kFourNodes, range(0, 4)), gpus_on({0, 0, 0}), NumaBinding::node);
    EXPECT_THAT(lists(placement), ElementsAre("0-3", "0-3", "0-3"));
    EXPECT_THAT(threads(*placement), ElementsAre(1, 1, 1));
    EXPECT_EQ(placement->notes.size(), 1U);
}

std::vector<PlacementRequest> all_requests() {
    std::vector<PlacementRequest> requests;
    for (int rank_count = 1; rank_count <= 6; ++rank_count) {
        for (const auto binding : {NumaBinding::none, NumaBinding::node, NumaBinding::socket,
                                   NumaBinding::exclusive, NumaBinding::core_complex}) {
            for (const int core_count : {-1, 0, 1, 2}) {
                PlacementRequest request;
                request.rank_count = rank_count;
                request.numa_binding = binding;
                if (core_count >= 0) {
                    request.cpus_per_rank = CpusPerRank{core_count};
                }
                requests.push_back(request);
            }
        }
    }
    return requests;
}

/// All small machines, masks, sets of GPUs and requests.
template <class Check>
void for_all_plans(const Check& check) {
    const std::vector<std::vector<int>> masks = {{}, range(0, 8), {0, 3, 5, 6, 7}, {1}};
    const std::vector<std::vector<int>> sites = {{}, {1, 0, 1, 0}, {0, 0, 0, 0}, {-1, -1, -1, -1}};
    const std::vector<PlacementRequest> requests = all_requests();
    for (const char* description : {kSmall, kFourNodes, kFourNodesInterleaved, kComplexes}) {
        for (const auto& mask : masks) {
            const Topology topology = mask.size() > 1 && description == kSmall
                                          ? machine(kSmall)
                                          : machine(description, mask);
            for (const auto& nodes : sites) {
                for (const PlacementRequest& request : requests) {
                    check(request, topology, gpus_on(nodes));
                }
            }
        }
    }
}

TEST(PlacementPropertyTest, SetsAreInTheMaskNotEmptyAndDisjointWherePromised) {
    int plans = 0;
    int disjoint_plans = 0;
    for_all_plans([&](const PlacementRequest& request, const Topology& topology, const Gpus& gpus) {
        const auto placement = plan_placement(request, topology, gpus);
        if (!placement) {
            EXPECT_EQ(placement.error().code, Errc::invalid_argument);
            EXPECT_THAT(placement.error().detail, HasSubstr("--"));
            return;
        }
        ++plans;
        std::set<int> mask;
        for (const Cpu& cpu : topology.cpus) {
            mask.insert(cpu.id);
        }
        const bool asked_for_cores =
            request.cpus_per_rank.has_value() || request.numa_binding == NumaBinding::exclusive;
        const bool gave_up =
            !placement->notes.empty() &&
            placement->notes.back().find("no cores of their own") != std::string::npos;
        const bool disjoint = asked_for_cores && !gave_up;
        const bool bound = request.numa_binding != NumaBinding::none || disjoint;
        disjoint_plans += disjoint ? 1 : 0;
        std::set<int> seen;
        ASSERT_EQ(placement->ranks.size(), static_cast<std::size_t>(request.rank_count));
        for (const RankPlacement& rank : placement->ranks) {
            ASSERT_EQ(rank.cpus.empty(), !bound);
            ASSERT_EQ(rank.numa_nodes.empty(), !bound);
            ASSERT_GE(rank.thread_count, 1);
            ASSERT_TRUE(std::is_sorted(rank.cpus.begin(), rank.cpus.end()));
            for (const int cpu : rank.cpus) {
                ASSERT_TRUE(mask.contains(cpu));
                ASSERT_TRUE(seen.insert(cpu).second || !disjoint) << binding_report(*placement);
            }
        }
    });
    EXPECT_GT(plans, 1000);
    EXPECT_GT(disjoint_plans, 300);
}

TEST(BindingReportTest, ReportHasALineForEachRankAndThenTheNotes) {
    const auto placement =
        divide(kAuto, 2, machine(kFourNodesInterleaved), gpus_on({2, 0}), NumaBinding::socket);
    ASSERT_TRUE(placement) << placement.error().detail;
    EXPECT_EQ(binding_report(*placement),
              "local rank 0: GPU 0 (0000:10:00.0), NUMA node 2, CPUs 8-11,24-27, 4 threads\n"
              "local rank 1: GPU 1 (0000:11:00.0), NUMA node 0, CPUs 0-3,16-19, 4 threads\n");
    const auto crowd = divide(kAuto, 3, machine(kSmall));
    EXPECT_THAT(binding_report(*crowd), saying("local rank 2: not bound, 1 thread\n",
                                               "\nnote: --cpus-per-rank auto: 3 workers"));
    EXPECT_THAT(binding_report(*divide(kAuto, 2, machine(kSmall))),
                HasSubstr("local rank 1: NUMA node 0, CPU 1, 1 thread\n"));
}

TEST(BindingReportTest, CpuListsHaveTheFormatOfTheKernel) {
    EXPECT_EQ(format_cpu_list({}), "");
    EXPECT_EQ(format_cpu_list({4}), "4");
    EXPECT_EQ(format_cpu_list({0, 1, 2, 3, 8}), "0-3,8");
    EXPECT_EQ(format_cpu_list({0, 2, 3}), "0,2-3");
}

}  // namespace
}  // namespace regroup::agent
