// SPDX-License-Identifier: Apache-2.0
//
// Which node gets which rank, by --rank-order.
#include <fstream>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunRankOrder : public EndToEnd {
   protected:
    // Starts the node 127.0.0.(`number` + 1).
    Program& start(unsigned number, const Words& flags, const Words& environment = {}) {
        const Words all = node(number, std::to_string(kNodes), endpoint_) + flags;
        programs_.push_back(
            start_run(all + Words{probe_program(), "store", "mark=up"}, environment));
        return *programs_.back();
    }
    // The numbers of the nodes by rank, when all have ended.
    std::vector<std::string> ranks() {
        for (const auto& program : programs_) {
            EXPECT_EQ(program->wait(), 0) << program->output();
        }
        std::vector<std::string> result;
        for (unsigned rank = 0; rank < kNodes; ++rank) {
            for (const auto& program : programs_) {
                const std::string text = program->output();
                const std::size_t end = text.find(":" + std::to_string(rank) + "] read word of ");
                if (end != text.npos) {
                    result.push_back(text.substr(end - 1, 1));
                }
            }
        }
        return result;
    }

    static constexpr unsigned kNodes = 4;
    const std::string endpoint_ = "127.0.0.1:" + std::to_string(unused_port());
    std::vector<std::unique_ptr<Program>> programs_;
};

// A step of four tasks on four nodes, of which two hang on each switch.
Words slurm(unsigned index, const std::string& topology) {
    return {"SLURM_JOB_ID=4711",
            "SLURM_STEP_ID=0",
            "SLURM_STEP_NUM_TASKS=4",
            "SLURM_STEP_NUM_NODES=4",
            "SLURM_STEP_TASKS_PER_NODE=1(x4)",
            "SLURM_STEP_NODELIST=n[0-3]",
            "SLURM_NODEID=" + std::to_string(index),
            "SLURM_PROCID=" + std::to_string(index),
            "SLURMD_NODENAME=n" + std::to_string(index),
            "SLURM_TOPOLOGY_ADDR=" + topology + ".n" + std::to_string(index),
            "SLURM_TOPOLOGY_ADDR_PATTERN=switch.switch.node"};
}

TEST_F(RunRankOrder, NeighboursAreOfOneSwitchOfSlurm) {
    const Words flag{"--rank-order=topology"};
    start(4, flag, slurm(0, "s0.s2"));
    start(1, flag, slurm(2, "s0.s10"));
    start(3, flag, slurm(1, "s0.s10"));
    start(2, flag, slurm(3, "s0.s2"));
    // By name, neighbours would be of different switches.
    EXPECT_THAT(ranks(), ElementsAre("5", "3", "4", "2"));
}

TEST_F(RunRankOrder, HostFileGivesTheRanksAndSwitches) {
    const std::string path = folder() + "/hosts";
    std::ofstream(path) << "127.0.0.5 slots=1 switch=a\n"
                           "127.0.0.2 slots=1 switch=b\n"
                           "127.0.0.4 slots=1 switch=a\n";
    const Words flag{"--rank-order=file:" + path};
    for (const unsigned number : {1U, 2U, 3U, 4U}) {
        start(number, flag);
    }
    EXPECT_THAT(ranks(), ElementsAre("5", "4", "2", "3"));
    EXPECT_THAT(programs_[1]->output(), HasSubstr("the file does not have 127.0.0.3"));
}

TEST_F(RunRankOrder, NodeWithAnotherOrderIsRefused) {
    start(1, {"--rank-order=name"});
    Program& other = start(2, {"--rank-order=joined"});
    // The daemon may take either of them first.
    const auto either = [&] {
        for (const auto& program : programs_) {
            if (program->output().find("--rank-order is ") != std::string::npos) {
                return true;
            }
        }
        return false;
    };
    EXPECT_TRUE(eventually(either)) << other.output();
}

}  // namespace
}  // namespace regroup::testing
