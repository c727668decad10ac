// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/placement_machines.h"

namespace regroup::agent {
namespace {

Result<Placement> bind(NumaBinding binding, int rank_count, const Topology& topology,
                       const Gpus& gpus = {}) {
    return plan_placement({.rank_count = rank_count, .numa_binding = binding, .cpus_per_rank = {}},
                          topology, gpus);
}

TEST(NumaBindingTest, NodeIsThatOfTheGpuOfTheLocalRank) {
    const auto placement = bind(NumaBinding::node, 4, machine(kFourNodes), gpus_on({1, 0, 1, 0}));
    EXPECT_THAT(lists(placement), ElementsAre("8-15", "0-7", "8-15", "0-7"));
    EXPECT_THAT(threads(*placement), ElementsAre(2, 2, 2, 2)) << "two ranks share four cores";
    EXPECT_THAT(placement->ranks[0].numa_nodes, ElementsAre(1));
    EXPECT_EQ(placement->ranks[2].gpu, "2 (0000:12:00.0)");
}

TEST(NumaBindingTest, NodeIsReducedToTheAllowedCpus) {
    const Topology topology = machine(kFourNodesInterleaved, {1, 2, 4, 17});
    const auto placement = bind(NumaBinding::node, 2, topology, gpus_on({1, 0}));
    EXPECT_THAT(lists(placement), ElementsAre("4", "1-2,17"));
    EXPECT_THAT(threads(*placement), ElementsAre(1, 2));
}

TEST(NumaBindingTest, NodeWithoutAnAllowedCpuIsAnError) {
    const Topology topology = machine(kFourNodes, range(0, 8));
    EXPECT_THAT(lists(bind(NumaBinding::node, 2, topology, gpus_on({0, 1}))),
                ElementsAre("--numa-binding node: of NUMA node 1, next to GPU 1, this process may "
                            "use no CPU; widen its CPU set (taskset, cpuset)"));
    EXPECT_THAT(lists(bind(NumaBinding::socket, 1, topology, gpus_on({7}))),
                ElementsAre(HasSubstr("--numa-binding socket: of NUMA node 7")));
}

TEST(NumaBindingTest, MoreRanksThanGpusIsAnError) {
    EXPECT_THAT(lists(bind(NumaBinding::node, 3, machine(kFourNodes), gpus_on({0}))),
                ElementsAre("--numa-binding node needs a GPU for each of the 3 workers of this "
                            "node, and 1 GPU can be seen"));
}

TEST(NumaBindingTest, SocketHasAllNodesOfThePackage) {
    const auto placement = bind(NumaBinding::socket, 3, machine(kFourNodes), gpus_on({3, 0, 2}));
    EXPECT_THAT(lists(placement), ElementsAre("16-31", "0-15", "16-31"));
    EXPECT_THAT(placement->ranks[0].numa_nodes, ElementsAre(2, 3));
    EXPECT_THAT(threads(*placement), ElementsAre(4, 8, 4));
}

TEST(NumaBindingTest, SocketSkipsNodesWithoutAllowedCpus) {
    const auto placement =
        bind(NumaBinding::socket, 1, machine(kFourNodes, range(18, 24)), gpus_on({2}));
    EXPECT_THAT(lists(placement), ElementsAre("18-23"));
}

TEST(NumaBindingTest, ExclusiveDividesTheCoresOfANodeAmongItsGpus) {
    const auto placement =
        bind(NumaBinding::exclusive, 4, machine(kFourNodes), gpus_on({1, 0, 1, 0}));
    EXPECT_THAT(lists(placement), ElementsAre("8-11", "0-3", "12-15", "4-7"));
    EXPECT_THAT(threads(*placement), ElementsAre(2, 2, 2, 2));
}

TEST(NumaBindingTest, ExclusiveGivesWhatRemainsToTheFirst) {
    EXPECT_THAT(lists(bind(NumaBinding::exclusive, 3, machine(kFourNodes), gpus_on({0, 0, 0}))),
                ElementsAre("0-3", "4-5", "6-7"));
    EXPECT_THAT(
        lists(bind(NumaBinding::exclusive, 3, machine(kFourNodesInterleaved), gpus_on({0, 0, 0}))),
        ElementsAre("0-1,16-17", "2,18", "3,19"));
}

TEST(NumaBindingTest, ExclusiveCountsTheNodesGpusAndNotTheRanks) {
    EXPECT_THAT(lists(bind(NumaBinding::exclusive, 1, machine(kFourNodes), gpus_on({0, 0}))),
                ElementsAre("0-3"));
}

TEST(NumaBindingTest, ExclusiveNeedsACoreForEachGpu) {
    EXPECT_THAT(
        lists(bind(NumaBinding::exclusive, 2, machine(kFourNodes, {0, 1, 9}), gpus_on({0, 0}))),
        ElementsAre("--numa-binding exclusive: NUMA node 0 has 1 physical core that this "
                    "process may use, too few for 2 GPUs"));
    EXPECT_THAT(lists(bind(NumaBinding::exclusive, 3, machine(kSmall))),
                ElementsAre("--numa-binding exclusive: NUMA node 0 has 2 physical cores that this "
                            "process may use, too few for 3 workers"));
}

TEST(NumaBindingTest, CoreComplexesAreTakenInTurn) {
    EXPECT_THAT(lists(bind(NumaBinding::core_complex, 3, machine(kComplexes), gpus_on({0, 0, 0}))),
                ElementsAre("0-3", "4-7", "0-3"));
    EXPECT_THAT(lists(bind(NumaBinding::core_complex, 2, machine(kComplexes))),
                ElementsAre("0-3", "4-7"));
}

TEST(NumaBindingTest, TheLargestCoreComplexComesFirst) {
    const auto placement =
        bind(NumaBinding::core_complex, 3, machine(kComplexes, {1, 4, 5, 6}), gpus_on({0, 0, 0}));
    EXPECT_THAT(lists(placement), ElementsAre("4-6", "1", "4-6"));
    EXPECT_THAT(threads(*placement), ElementsAre(1, 1, 1)) << "ranks 0 and 2 share three cores";
}

TEST(NumaBindingTest, NodeWithoutASharedCacheIsOneComplex) {
    EXPECT_THAT(lists(bind(NumaBinding::core_complex, 2, machine("numa:2 core:2 pu:1"))),
                ElementsAre("0-1", "2-3"));
}

TEST(NumaBindingTest, RanksWithoutGpusAreDealtToTheNodesInOrder) {
    EXPECT_THAT(lists(bind(NumaBinding::node, 4, machine("numa:2 core:2 pu:1"))),
                ElementsAre("0-1", "0-1", "2-3", "2-3"));
    EXPECT_THAT(lists(bind(NumaBinding::node, 3, machine("numa:2 core:2 pu:1"))),
                ElementsAre("0-1", "0-1", "2-3"));
    EXPECT_THAT(lists(bind(NumaBinding::node, 2, machine(kFourNodes, range(8, 24)))),
                ElementsAre("8-15", "16-23"));
    EXPECT_THAT(lists(bind(NumaBinding::exclusive, 4, machine("numa:2 core:4 pu:1"))),
                ElementsAre("0-1", "2-3", "4-5", "6-7"));
}

TEST(NumaBindingTest, NoRankIsBoundWithoutARequest) {
    const auto placement = bind(NumaBinding::none, 3, machine(kFourNodes));
    EXPECT_THAT(lists(placement), ElementsAre("", "", ""));
    EXPECT_THAT(threads(*placement), ElementsAre(5, 5, 5));
}

TEST(NumaBindingTest, TheFlagIsParsed) {
    EXPECT_EQ(numa_binding_named("node"), NumaBinding::node);
    EXPECT_EQ(numa_binding_named("core-complex"), NumaBinding::core_complex);
    EXPECT_EQ(numa_binding_named("cores"), std::nullopt);
}

}  // namespace
}  // namespace regroup::agent
