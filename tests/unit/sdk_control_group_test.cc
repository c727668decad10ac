// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "tests/support/machine_folder.h"
#include "worker_sdk/src/base/control_group.h"

namespace regroup {
namespace {

TEST(SdkControlGroup, ProcessorsAreTheQuotaRoundedDownToAtLeastOne) {
    const testing::MachineFolder machine;
    EXPECT_EQ(control_group_processors(machine.root()).group, 0U);
    EXPECT_EQ(control_group_processors(machine.root()).processors, 0U);
    machine.write("proc/self/cgroup", "0::/\n");
    machine.write("proc/self/mountinfo", "31 23 0:28 / /sys/fs/cgroup rw - cgroup2 none rw\n");
    for (const auto& [text, processors] :
         {std::pair("290000 100000\n", 2U), std::pair("50000 100000\n", 1U)}) {
        machine.write("sys/fs/cgroup/cpu.max", text);
        EXPECT_EQ(control_group_processors(machine.root()).processors, processors);
        EXPECT_NE(control_group_processors(machine.root()).group, 0U);
    }
}

}  // namespace
}  // namespace regroup
