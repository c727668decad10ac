// SPDX-License-Identifier: Apache-2.0
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "agent/placement/gpus.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

/// Four GPUs on the nodes 1, 0, 1 and 0, in the order of the bus.
class GpusTest : public ::testing::Test {
   protected:
    GpusTest() {
        search_.root = folder_.path();
        add("0000:9f:00.0", "GPU-dddd0004", 0);
        add("0000:3b:00.0", "GPU-aaaa0001", 1);
        add("0000:5e:00.0", "GPU-bbbb0002", 0);
        add("0000:86:00.0", "GPU-cccc0003", 1);
    }

    void add(const std::string& address, const std::string& uuid, int numa_node,
             const std::string& model = "NVIDIA H100") {
        folder_.write("proc/driver/nvidia/gpus/" + address + "/information",
                      "Model: \t\t " + model + "\nIRQ:   \t\t 70\nGPU UUID: \t " + uuid +
                          "\nBus Type: \t PCIe\n");
        folder_.write("sys/bus/pci/devices/" + address + "/numa_node",
                      std::to_string(numa_node) + "\n");
    }

    /// The bus of each address, or only the text of the error.
    std::vector<std::string> buses(const std::string& visible) {
        search_.visible = visible;
        return buses();
    }
    std::vector<std::string> buses() {
        const auto gpus = find_gpus(search_);
        if (!gpus) {
            EXPECT_EQ(gpus.error().code, Errc::invalid_argument);
            return {gpus.error().detail};
        }
        std::vector<std::string> buses;
        for (const Gpu& gpu : gpus->list) {
            buses.push_back(gpu.address.substr(gpu.address.find(':') + 1, 2));
        }
        return buses;
    }

    testing::TemporaryDirectory folder_;
    GpuSearch search_;
};

TEST_F(GpusTest, GpusComeInTheOrderOfTheBusWithTheirNodes) {
    const auto gpus = find_gpus(search_);
    ASSERT_TRUE(gpus) << gpus.error().detail;
    EXPECT_EQ(gpus->note, "");
    ASSERT_EQ(gpus->list.size(), 4U);
    EXPECT_EQ(gpus->list[0], (Gpu{.address = "0000:3b:00.0",
                                  .uuid = "GPU-aaaa0001",
                                  .model = "NVIDIA H100",
                                  .numa_node = 1,
                                  .numa_node_known = true}));
    EXPECT_EQ(gpus->list[1].numa_node, 0);
    EXPECT_EQ(gpus->list[2].numa_node, 1);
    EXPECT_EQ(gpus->list[3].numa_node, 0);
    EXPECT_EQ(gpus->list[3].address, "0000:9f:00.0");
}

TEST_F(GpusTest, HigherDomainComesLater) {
    add("0001:02:00.0", "GPU-eeee0005", 1);
    add("10000:01:00.0", "GPU-ffff0006", 1);
    EXPECT_THAT(buses(), ElementsAre("3b", "5e", "86", "9f", "02", "01"));
}

TEST_F(GpusTest, NegativeOrMissingNodeCountsAsUnknownNodeZero) {
    add("0000:a1:00.0", "GPU-eeee0005", -1);
    add("0000:a2:00.0", "GPU-ffff0006", 1);
    fs::remove(search_.root / "sys/bus/pci/devices/0000:a2:00.0/numa_node");
    const auto gpus = find_gpus(search_);
    ASSERT_TRUE(gpus) << gpus.error().detail;
    ASSERT_EQ(gpus->list.size(), 6U);
    for (const std::size_t index : {4U, 5U}) {
        EXPECT_EQ(gpus->list[index].numa_node, 0);
        EXPECT_FALSE(gpus->list[index].numa_node_known);
    }
}

TEST_F(GpusTest, VisibleDevicesSelectAndOrder) {
    EXPECT_THAT(buses("2,0"), ElementsAre("86", "3b"));
    EXPECT_THAT(buses(" 3 , 1 "), ElementsAre("9f", "5e"));
    EXPECT_THAT(buses("GPU-dddd0004,GPU-aaaa"), ElementsAre("9f", "3b"));
    EXPECT_THAT(buses("MIG-GPU-bbbb0002/1/0,MIG-GPU-bbbb0002/2/0"), ElementsAre("5e", "5e"));
}

TEST_F(GpusTest, VisibleDevicesEndAtTheFirstInvalidEntry) {
    EXPECT_THAT(buses(""), IsEmpty());
    EXPECT_THAT(buses("-1"), IsEmpty());
    EXPECT_THAT(buses("NoDevFiles"), IsEmpty());
    EXPECT_THAT(buses("1,-1,2"), ElementsAre("5e"));
    EXPECT_THAT(buses("1,4,2"), ElementsAre("5e"));
    EXPECT_THAT(buses("1,GPU-nobody,2"), ElementsAre("5e"));
    EXPECT_THAT(buses("1,,2"), ElementsAre("5e"));
    EXPECT_THAT(buses("0x1"), IsEmpty());
}

TEST_F(GpusTest, AmbiguousUuidNamesNoGpu) {
    add("0000:a1:00.0", "GPU-aaaa0009", 0);
    EXPECT_THAT(buses("GPU-aaaa"), IsEmpty());
    EXPECT_THAT(buses("GPU-aaaa0009"), ElementsAre("a1"));
}

TEST_F(GpusTest, EntriesThatOnlyTheDriverKnowsAreRefused) {
    EXPECT_THAT(buses("1,MIG-3f2a"),
                ElementsAre(HasSubstr("which GPU 'MIG-3f2a' is a part of only the driver knows")));
    EXPECT_THAT(buses("1,1"),
                ElementsAre(HasSubstr("CUDA_VISIBLE_DEVICES='1,1' names a GPU twice")));
    add("0000:a1:00.0", std::string("GPU-") + std::string(8, '?'), 0);
    EXPECT_THAT(buses("GPU-aaaa0001"), ElementsAre("3b"));
    EXPECT_THAT(buses("GPU-eeee"), ElementsAre(HasSubstr("the driver does not tell yet")));
}

TEST_F(GpusTest, DifferentModelsMakeTheOrderUncertain) {
    add("0000:a1:00.0", "GPU-eeee0005", 0, "NVIDIA T4");
    EXPECT_THAT(find_gpus(search_)->note, HasSubstr("CUDA_DEVICE_ORDER=PCI_BUS_ID"));
    search_.device_order = "PCI_BUS_ID";
    EXPECT_EQ(find_gpus(search_)->note, "");
    search_.device_order = "FASTEST_FIRST";
    EXPECT_NE(find_gpus(search_)->note, "");
    search_.visible = "GPU-eeee0005,GPU-aaaa0001";
    EXPECT_EQ(find_gpus(search_)->note, "");
}

TEST_F(GpusTest, MachineWithoutADriverHasNoGpus) {
    search_.root /= "nothing";
    search_.visible = "0,1";
    EXPECT_THAT(buses(), IsEmpty());
}

}  // namespace
}  // namespace regroup::agent
