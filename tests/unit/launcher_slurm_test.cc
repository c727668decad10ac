// SPDX-License-Identifier: Apache-2.0
#include <list>
#include <map>

#include "launcher/cluster/allocation.h"
#include "launcher/run_flags.h"
#include "launcher_variables.h"
#include "tests/support/matchers.h"

namespace regroup::launcher {
namespace {

using testing::environment_of;

using Values = std::map<std::string, std::string>;

/// The variables of the second of three nodes under `srun --nodes=3 --ntasks-per-node=1`.
const Values kSecondOfThree = {{"SLURM_JOB_ID", "4711"},
                               {"SLURM_STEP_ID", "0"},
                               {"SLURM_STEP_NUM_TASKS", "3"},
                               {"SLURM_STEP_NUM_NODES", "3"},
                               {"SLURM_STEP_NODELIST", "gpu[07-08,12]"},
                               {"SLURM_STEP_TASKS_PER_NODE", "1(x3)"},
                               {"SLURM_JOB_NODELIST", "gpu[07-08,12-13]"},
                               {"SLURM_NODEID", "1"},
                               {"SLURM_PROCID", "1"},
                               {"SLURM_LOCALID", "0"},
                               {"SLURMD_NODENAME", "gpu08"}};

/// `first` with `over` on top.
Values operator+(Values first, const Values& over) {
    for (const auto& [name, value] : over) {
        first[name] = value;
    }
    return first;
}

Values without(Values values, const std::string& name) {
    values.erase(name);
    return values;
}

std::optional<Allocation> found_in(const Values& values) {
    const Result<std::optional<Allocation>> found = find_allocation(environment_of(values));
    if (!found) {
        ADD_FAILURE() << found.error().detail;
        return std::nullopt;
    }
    return *found;
}

Allocation allocation_of(const Values& values) {
    const std::optional<Allocation> found = found_in(values);
    EXPECT_TRUE(found) << "no allocation";
    return found.value_or(Allocation());
}

std::string refusal_of(const Values& values) {
    const Result<std::optional<Allocation>> found = find_allocation(environment_of(values));
    if (found) {
        return "no error";
    }
    EXPECT_EQ(found.error().code, Errc::invalid_argument);
    EXPECT_THAT(found.error().detail, Not(HasSubstr("\n")));
    return found.error().detail;
}

TEST(SlurmAllocation, TaskKnowsItsNodeTheHeadAndTheNumberOfNodes) {
    const Allocation allocation = allocation_of(kSecondOfThree);
    EXPECT_EQ(allocation.scheduler, "Slurm");
    EXPECT_EQ(allocation.job, "slurm-4711.0");
    EXPECT_EQ(allocation.nodes, 3U);
    EXPECT_EQ(allocation.workers, "");
    EXPECT_EQ(allocation.index, 1U);
    EXPECT_EQ(allocation.head, "gpu07");
    EXPECT_THAT(allocation.head_advice, saying("gpu07", "--rdzv-endpoint=ADDRESS:PORT --nnodes=3"));
    EXPECT_FALSE(allocation.is_head);
    EXPECT_EQ(allocation.node_name, "gpu08");
    EXPECT_EQ(allocation.address, "");
    EXPECT_EQ(allocation.topology, "");
}

TEST(SlurmAllocation, FirstNodeOfTheStepIsTheHead) {
    const Allocation first =
        allocation_of(kSecondOfThree + Values{{"SLURMD_NODENAME", "gpu07"}, {"SLURM_NODEID", "0"}});
    EXPECT_TRUE(first.is_head);
    EXPECT_EQ(first.index, 0U);
    // The list of the job may begin with nodes that the step does not have.
    EXPECT_EQ(allocation_of(kSecondOfThree + Values{{"SLURM_JOB_NODELIST", "gpu[01-13]"}}).head,
              "gpu07");
}

TEST(SlurmAllocation, RequeuedJobIsAnotherRun) {
    EXPECT_EQ(allocation_of(kSecondOfThree + Values{{"SLURM_RESTART_COUNT", "0"}}).job,
              "slurm-4711.0");
    EXPECT_EQ(allocation_of(kSecondOfThree + Values{{"SLURM_RESTART_COUNT", "2"}}).job,
              "slurm-4711.0-restart2");
}

TEST(SlurmAllocation, EachNodeHasAWorkerForEachOfItsGpus) {
    EXPECT_EQ(allocation_of(kSecondOfThree + Values{{"SLURM_GPUS_ON_NODE", "8"}}).workers, "8");
    EXPECT_EQ(allocation_of(kSecondOfThree + Values{{"SLURM_GPUS_ON_NODE", "0"}}).workers, "");
    EXPECT_EQ(allocation_of(kSecondOfThree + Values{{"SLURM_GPUS_ON_NODE", ""}}).workers, "");
}

TEST(SlurmAllocation, TopologyIsThePathOfSwitches) {
    const Values tree = {{"SLURM_TOPOLOGY_ADDR", "s0.s4.gpu08"},
                         {"SLURM_TOPOLOGY_ADDR_PATTERN", "switch.switch.node"}};
    EXPECT_EQ(allocation_of(kSecondOfThree + tree).topology, "s0.s4.gpu08");
    const Values flat = {{"SLURM_TOPOLOGY_ADDR", "gpu08"}, {"SLURM_TOPOLOGY_ADDR_PATTERN", "node"}};
    EXPECT_EQ(allocation_of(kSecondOfThree + flat).topology, "");
}

TEST(SlurmAllocation, NodeOfACloudIsReachedByItsAddress) {
    const auto head = [](const std::string& aliases) {
        return allocation_of(kSecondOfThree + Values{{"SLURM_NODE_ALIASES", aliases}}).head;
    };
    EXPECT_EQ(head("gpu08:10.0.0.8:h8,gpu07:10.0.0.7:h7"), "10.0.0.7");
    EXPECT_EQ(head("gpu07:[2001:db8::7]:h7"), "2001:db8::7");
    for (const char* useless : {"(null)", "", "gpu0:10.0.0.7:h7", "gpu07", "gpu07:", "gpu07::h7",
                                "gpu07:[2001:db8::7", "gpu07:[]:h7", ",,"}) {
        EXPECT_EQ(head(useless), "gpu07") << useless;
    }
}

TEST(SlurmAllocation, OutsideAStepOfSeveralNodesThereIsNone) {
    EXPECT_FALSE(found_in({}));
    // A batch script.
    EXPECT_FALSE(found_in({{"SLURM_JOB_ID", "4711"},
                           {"SLURM_PROCID", "0"},
                           {"SLURM_NODEID", "0"},
                           {"SLURM_NTASKS", "16"},
                           {"SLURM_NNODES", "2"},
                           {"SLURM_JOB_NODELIST", "gpu[07-08]"},
                           {"SLURMD_NODENAME", "gpu07"}}));
}

// Such as a shell by srun --pty.
TEST(SlurmAllocation, SingleTaskGivesTheWorkersOnly) {
    const auto found = found_in(kSecondOfThree + Values{{"SLURM_STEP_NUM_TASKS", "1"},
                                                        {"SLURM_STEP_NUM_NODES", "1"},
                                                        {"SLURM_STEP_NODELIST", "gpu08"},
                                                        {"SLURM_GPUS_ON_NODE", "8"}});
    ASSERT_TRUE(found);
    EXPECT_EQ(found->nodes, 1U);
    EXPECT_EQ(found->workers, "8");
    EXPECT_EQ(found->head, "");
    EXPECT_EQ(found->node_name, "");
}

TEST(SlurmAllocation, SeveralTasksOnANodeAreRefusedWithTheRightLine) {
    EXPECT_EQ(refusal_of(kSecondOfThree + Values{{"SLURM_STEP_NUM_TASKS", "24"}}),
              "Slurm started 24 tasks on 3 nodes, and regroup run must be one task on each: "
              "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 regroup run --nproc-per-node=8 ... "
              "starts 8 workers on each node; if each task is a job of its own, give "
              "--standalone");
    EXPECT_THAT(refusal_of({{"SLURM_STEP_NUM_TASKS", "8"}, {"SLURM_STEP_NUM_NODES", "1"}}),
                saying("8 tasks on 1 node,", "--ntasks=1", "--nproc-per-node=8"));
}

TEST(SlurmAllocation, StepOfAHeterogeneousJobHasItsHeadByName) {
    // The list has the order of names, SLURM_NODEID that of the components.
    const Values second = kSecondOfThree + Values{{"SLURM_STEP_NODELIST", "cpu1,gpu[07-08]"},
                                                  {"SLURM_HET_SIZE", "2"}};
    const Allocation on_gpu =
        allocation_of(second + Values{{"SLURMD_NODENAME", "gpu07"}, {"SLURM_NODEID", "0"}});
    EXPECT_EQ(on_gpu.head, "cpu1");
    EXPECT_FALSE(on_gpu.is_head);
    const Allocation on_cpu =
        allocation_of(second + Values{{"SLURMD_NODENAME", "cpu1"}, {"SLURM_NODEID", "2"}});
    EXPECT_TRUE(on_cpu.is_head);
}

TEST(SlurmAllocation, ComponentsOnOneNodeAreRefused) {
    EXPECT_THAT(refusal_of(kSecondOfThree + Values{{"SLURM_STEP_NODELIST", "gpu[07-08],gpu08"}}),
                saying("components of this heterogeneous step are on node gpu08", "--het-group"));
}

TEST(SlurmAllocation, MissingVariableIsNamedWithTheWayOut) {
    for (const char* name : {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_NODES",
                             "SLURM_STEP_NODELIST", "SLURM_NODEID", "SLURMD_NODENAME"}) {
        EXPECT_THAT(refusal_of(without(kSecondOfThree, name)),
                    AllOf(HasSubstr(std::string(name) + " is not set"), HasSubstr("--export=ALL"),
                          HasSubstr("--rdzv-endpoint=HOST:PORT")))
            << name;
    }
}

TEST(SlurmAllocation, ValueThatIsNoNumberIsNamed) {
    for (const char* name :
         {"SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_STEP_NUM_TASKS", "SLURM_STEP_NUM_NODES",
          "SLURM_NODEID", "SLURM_RESTART_COUNT", "SLURM_GPUS_ON_NODE"}) {
        for (const char* value : {"x", "-1", "1x", "99999999999"}) {
            EXPECT_EQ(refusal_of(kSecondOfThree + Values{{name, value}}),
                      std::string(name) + "=" + value + " is not a number");
        }
    }
}

TEST(SlurmAllocation, ContradictionsAreRefused) {
    EXPECT_THAT(refusal_of(kSecondOfThree + Values{{"SLURM_STEP_NUM_NODES", "4"}}),
                HasSubstr("contradict each other"));
    EXPECT_THAT(refusal_of(kSecondOfThree + Values{{"SLURM_STEP_NUM_NODES", "0"}}),
                HasSubstr("contradict each other"));
    EXPECT_EQ(refusal_of(kSecondOfThree + Values{{"SLURM_STEP_NODELIST", "gpu[07-08]"}}),
              "SLURM_STEP_NODELIST=gpu[07-08] names 2 nodes, but SLURM_STEP_NUM_NODES is 3");
    EXPECT_EQ(refusal_of(kSecondOfThree + Values{{"SLURM_STEP_NODELIST", "gpu[07-"}}),
              "SLURM_STEP_NODELIST: host list, character 4: this [ is not closed");
    EXPECT_THAT(refusal_of(kSecondOfThree + Values{{"SLURMD_NODENAME", "gpu99"}}),
                saying("SLURMD_NODENAME=gpu99", "another step"));
}

/// `regroup run` as that task, until the end of the test.
class LauncherInAStep : public ::testing::Test {
   protected:
    void be(const Values& values) {
        for (const auto& [name, value] : values) {
            variables_.emplace_back(name.c_str(), value.c_str());
        }
    }
    [[nodiscard]] static RunFlags parsed(const std::vector<std::string>& flags,
                                         Front front = Front::run) {
        std::vector<std::string> words = flags;
        words.emplace_back("./train");
        const auto result = parse_run_flags(front, words);
        if (!result) {
            ADD_FAILURE() << result.error().detail;
            return {};
        }
        return std::get<RunFlags>(*result);
    }

   private:
    std::list<testing::ScopedVariable> variables_;
};

TEST_F(LauncherInAStep, NeedsNoFlag) {
    be(kSecondOfThree + Values{{"SLURM_GPUS_ON_NODE", "8"}});
    const RunFlags options = parsed({});
    EXPECT_EQ(options.rendezvous.backend, "regroup");
    EXPECT_EQ(options.rendezvous.endpoint, "gpu07:" + std::to_string(port_of_job("slurm-4711.0")));
    EXPECT_EQ(options.agent.core.job, "slurm-4711.0");
    EXPECT_EQ(options.rendezvous.is_host, false);
    EXPECT_EQ(options.agent.core.policy.nodes_min, 3U);
    EXPECT_EQ(options.agent.core.policy.nodes_max, 3U);
    EXPECT_EQ(options.workers, "8");
}

TEST_F(LauncherInAStep, FlagsWinOverTheStep) {
    be(kSecondOfThree + Values{{"SLURM_GPUS_ON_NODE", "8"}});
    const RunFlags options = parsed({"--nnodes=2:3", "--nproc-per-node=4", "--rdzv-id=nightly"});
    EXPECT_EQ(options.agent.core.policy.nodes_min, 2U);
    EXPECT_EQ(options.workers, "4");
    EXPECT_EQ(options.agent.core.job, "nightly");
    EXPECT_EQ(options.rendezvous.endpoint, "gpu07:" + std::to_string(port_of_job("nightly")));
}

TEST_F(LauncherInAStep, TakesNothingFromTheStepWhereTheNodesMeetElsewhereOrNotAtAll) {
    // As srun starts it for each worker: that is no mistake in these cases.
    be(kSecondOfThree + Values{{"SLURM_STEP_NUM_TASKS", "24"}});
    for (const std::vector<std::string>& flags : std::vector<std::vector<std::string>>{
             {"--standalone"},
             {"--nnodes=1"},
             {"--rdzv-backend=c10d", "--rdzv-endpoint=login1:29400"},
             {"--node-rank=1", "--nnodes=24", "--master-addr=gpu07"}}) {
        EXPECT_FALSE(parsed(flags).rendezvous.allocation) << flags.front();
    }
    EXPECT_FALSE(parsed({}, Front::torchrun).rendezvous.allocation);
}

TEST(PortOfJob, IsTheSameOnAllNodesAndOutsideTheEphemeralPorts) {
    EXPECT_EQ(port_of_job("slurm-4711.0"), port_of_job("slurm-4711.0"));
    EXPECT_NE(port_of_job("slurm-4711.0"), port_of_job("slurm-4711.0-restart1"));
    for (int i = 0; i < 100; ++i) {
        const std::uint16_t port = port_of_job("slurm-" + std::to_string(i) + ".0");
        EXPECT_GE(port, 20000);
        EXPECT_LT(port, 32000);
    }
}

}  // namespace
}  // namespace regroup::launcher
