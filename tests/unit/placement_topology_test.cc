// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <sched.h>
#include <string>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/unit/placement_machines.h"

namespace regroup::agent {
namespace {

TEST(TopologyTest, EveryCpuKnowsItsPlace) {
    const Topology topology = machine(kFourNodes);
    ASSERT_EQ(topology.cpus.size(), 32U);
    EXPECT_EQ(topology.cpus[0],
              (Cpu{.id = 0, .core = 0, .cache = 0, .numa_node = 0, .package = 0}));
    EXPECT_EQ(topology.cpus[15],
              (Cpu{.id = 15, .core = 14, .cache = 8, .numa_node = 1, .package = 0}));
    EXPECT_EQ(topology.cpus[16],
              (Cpu{.id = 16, .core = 16, .cache = 16, .numa_node = 2, .package = 1}));
}

TEST(TopologyTest, SiblingsMayBeFarApartInNumber) {
    const Topology topology = machine(kFourNodesInterleaved);
    ASSERT_EQ(topology.cpus.size(), 32U);
    EXPECT_EQ(topology.cpus[3],
              (Cpu{.id = 3, .core = 3, .cache = 0, .numa_node = 0, .package = 0}));
    EXPECT_EQ(topology.cpus[19],
              (Cpu{.id = 19, .core = 3, .cache = 0, .numa_node = 0, .package = 0}));
}

TEST(TopologyTest, OnlyAllowedCpusAreThereAndCoresKeepTheirNumbers) {
    const Topology topology = machine(kFourNodes, {3, 9});
    EXPECT_THAT(topology.cpus,
                ElementsAre(Cpu{.id = 3, .core = 2, .cache = 0, .numa_node = 0, .package = 0},
                            Cpu{.id = 9, .core = 8, .cache = 8, .numa_node = 1, .package = 0}));
}

TEST(TopologyTest, MachineWithoutCachesHasOneGroupForEachNode) {
    const Topology topology = machine("numa:2 core:2 pu:1");
    ASSERT_EQ(topology.cpus.size(), 4U);
    EXPECT_EQ(topology.cpus[1].cache, 0);
    EXPECT_EQ(topology.cpus[3].cache, 2);
}

TEST(TopologyTest, MemoryOnlyNodeHasNoCpus) {
    const Topology topology = machine("package:2 [numa] [numa(memory=1GB)] core:2 pu:1");
    ASSERT_EQ(topology.cpus.size(), 4U);
    EXPECT_EQ(topology.cpus[0].numa_node, topology.cpus[1].numa_node);
    EXPECT_EQ(topology.cpus[2].numa_node, topology.cpus[3].numa_node);
    EXPECT_NE(topology.cpus[1].numa_node, topology.cpus[2].numa_node);
}

TEST(TopologyTest, XmlIsRead) {
    const std::string xml = R"(<?xml version="1.0" encoding="UTF-8"?>
<!DOCTYPE topology SYSTEM "hwloc2.dtd">
<topology version="2.0">
 <object type="Machine" os_index="0" cpuset="0x3" complete_cpuset="0x3" allowed_cpuset="0x3"
   nodeset="0x4" complete_nodeset="0x4" allowed_nodeset="0x4" gp_index="1">
  <object type="NUMANode" os_index="2" cpuset="0x3" complete_cpuset="0x3" nodeset="0x4"
    complete_nodeset="0x4" gp_index="2" local_memory="1024"/>
  <object type="Core" os_index="0" cpuset="0x3" complete_cpuset="0x3" nodeset="0x4"
    complete_nodeset="0x4" gp_index="3">
   <object type="PU" os_index="0" cpuset="0x1" complete_cpuset="0x1" nodeset="0x4"
     complete_nodeset="0x4" gp_index="4"/>
   <object type="PU" os_index="1" cpuset="0x2" complete_cpuset="0x2" nodeset="0x4"
     complete_nodeset="0x4" gp_index="5"/>
  </object>
 </object>
</topology>
)";
    const auto topology = Topology::from_xml(xml);
    ASSERT_TRUE(topology) << topology.error().detail;
    EXPECT_THAT(topology->cpus,
                ElementsAre(Cpu{.id = 0, .core = 0, .cache = 0, .numa_node = 2, .package = 0},
                            Cpu{.id = 1, .core = 0, .cache = 0, .numa_node = 2, .package = 0}));
}

TEST(TopologyTest, UnreadableDescriptionIsAnArgumentError) {
    EXPECT_THAT(Topology::from_synthetic("nonsense:2"),
                fails(Errc::invalid_argument, "the topology 'nonsense:2': hwloc"));
    EXPECT_THAT(Topology::from_xml("<nonsense>"), fails(Errc::invalid_argument));
    EXPECT_THAT(Topology::from_synthetic(kSmall, {7}),
                fails("none of its CPUs is in the affinity mask"));
}

TEST(TopologyTest, ThisMachineHasTheCpusOfOurMaskAndOurEnvironmentStays) {
    ASSERT_EQ(::setenv("HWLOC_PLUGINS_PATH", "/elsewhere", 1), 0);
    char** const environment_before = ::environ;
    cpu_set_t before;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);

    const auto topology = Topology::load();

    ASSERT_TRUE(topology) << topology.error().detail;
    EXPECT_EQ(::environ, environment_before);
    EXPECT_STREQ(::getenv("HWLOC_PLUGINS_PATH"), "/elsewhere");
    ::unsetenv("HWLOC_PLUGINS_PATH");
    cpu_set_t after;
    ASSERT_EQ(::sched_getaffinity(0, sizeof after, &after), 0);
    EXPECT_TRUE(CPU_EQUAL(&before, &after));
    std::vector<int> ids;
    for (const Cpu& cpu : topology->cpus) {
        ids.push_back(cpu.id);
        EXPECT_LE(cpu.core, cpu.id);
    }
    std::vector<int> mask;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        if (CPU_ISSET(static_cast<std::size_t>(cpu), &before)) {
            mask.push_back(cpu);
        }
    }
    EXPECT_EQ(ids, mask);
}

TEST(TopologyTest, NarrowedMaskNarrowsTheTopology) {
    cpu_set_t before;
    ASSERT_EQ(::sched_getaffinity(0, sizeof before, &before), 0);
    int highest = 0;
    for (int cpu = 0; cpu < CPU_SETSIZE; ++cpu) {
        highest = CPU_ISSET(static_cast<std::size_t>(cpu), &before) ? cpu : highest;
    }
    cpu_set_t one;
    CPU_ZERO(&one);
    CPU_SET(static_cast<std::size_t>(highest), &one);
    ASSERT_EQ(::sched_setaffinity(0, sizeof one, &one), 0);
    const auto topology = Topology::load();
    ASSERT_EQ(::sched_setaffinity(0, sizeof before, &before), 0);
    ASSERT_TRUE(topology) << topology.error().detail;
    ASSERT_EQ(topology->cpus.size(), 1U);
    EXPECT_EQ(topology->cpus[0].id, highest);
}

}  // namespace
}  // namespace regroup::agent
