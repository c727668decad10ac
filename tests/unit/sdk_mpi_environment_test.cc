// SPDX-License-Identifier: Apache-2.0
#include <regroup/context.h>
#include <regroup/error.h>

#include <string>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/unit/context_variables.h"
#include "worker_sdk/src/context/mpi_environment.h"

namespace regroup {
namespace {

using testing::context_from;
using testing::Values;

std::string refusal_of(const Values& values) {
    try {
        (void)context_from(values);
        return "no error";
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        return error.what();
    }
}

/// `first` with `over` on top.
Values operator+(Values first, const Values& over) {
    for (const auto& [name, value] : over) {
        first[name] = value;
    }
    return first;
}

Values open_mpi(int rank, int size, int local_rank, int local_size) {
    return {{"OMPI_COMM_WORLD_RANK", std::to_string(rank)},
            {"OMPI_COMM_WORLD_SIZE", std::to_string(size)},
            {"OMPI_COMM_WORLD_LOCAL_RANK", std::to_string(local_rank)},
            {"OMPI_COMM_WORLD_LOCAL_SIZE", std::to_string(local_size)},
            {"PMIX_NAMESPACE", "1952907265"}};
}

const Values kSlurm = {{"SLURM_PROCID", "5"},
                       {"SLURM_NTASKS", "7"},
                       {"SLURM_LOCALID", "1"},
                       {"SLURM_NODEID", "2"},
                       {"SLURM_JOB_ID", "4711"},
                       {"SLURM_STEP_ID", "0"},
                       {"SLURM_STEP_NUM_TASKS", "7"},
                       {"SLURM_STEP_NUM_NODES", "3"},
                       {"SLURM_STEP_TASKS_PER_NODE", "2(x2),3"},
                       {"SLURM_STEP_NODELIST", "gpu[07-08,12]"}};

TEST(MpiEnvironment, OpenMpiOnOneNodeNeedsNoOtherVariable) {
    const Context context = context_from(open_mpi(3, 4, 3, 4));
    EXPECT_EQ(context.rank, 3U);
    EXPECT_EQ(context.world_size, 4U);
    EXPECT_EQ(context.local_rank, 3U);
    EXPECT_EQ(context.local_world_size, 4U);
    EXPECT_EQ(context.group_rank, 0U);
    EXPECT_EQ(context.group_world_size, 1U);
    EXPECT_EQ(context.master_addr, "127.0.0.1");
    EXPECT_EQ(context.master_port, port_of_job("openmpi-1952907265"));
    EXPECT_EQ(context.job, "openmpi-1952907265");
    EXPECT_FALSE(context.agent_store);
}

TEST(MpiEnvironment, OpenMpiOnSeveralNodesNeedsTheMastersAddress) {
    const Values third = open_mpi(6, 8, 2, 4);
    EXPECT_THAT(refusal_of(third), saying("started by Open MPI as rank 6 of 8", "set MASTER_ADDR"));
    const Context context = context_from(third + Values{{"MASTER_ADDR", "node0"}});
    EXPECT_EQ(context.master_addr, "node0");
    EXPECT_EQ(context.master_port, port_of_job("openmpi-1952907265"));
    EXPECT_EQ(context.group_rank, 1U);
    EXPECT_EQ(context.group_world_size, 2U);
    EXPECT_EQ(context_from(third + Values{{"MASTER_ADDR", "node0"}, {"MASTER_PORT", "29600"}})
                  .master_port,
              29600);
}

TEST(MpiEnvironment, RanksThatAreNotNumberedByNodeAreRefusedUnlessTheNodeIsGiven) {
    const Values scattered = open_mpi(1, 4, 0, 2) + Values{{"MASTER_ADDR", "node0"}};
    EXPECT_THAT(refusal_of(scattered), AllOf(HasSubstr("--map-by slot"), HasSubstr("GROUP_RANK")));
    const Context context =
        context_from(scattered + Values{{"GROUP_RANK", "1"}, {"GROUP_WORLD_SIZE", "2"}});
    EXPECT_EQ(context.rank, 1U);
    EXPECT_EQ(context.group_rank, 1U);
}

TEST(MpiEnvironment, SomeRankDetectsDifferentNodes) {
    // Three ranks on the first node, one on the second.
    EXPECT_THAT(refusal_of(open_mpi(0, 4, 0, 3) + Values{{"MASTER_ADDR", "node0"}}),
                HasSubstr("its nodes differ"));
}

TEST(MpiEnvironment, HydraNamesNoJobSoThePortIsRequired) {
    const Values hydra = {
        {"PMI_RANK", "1"}, {"PMI_SIZE", "4"}, {"MPI_LOCALRANKID", "1"}, {"MPI_LOCALNRANKS", "4"}};
    EXPECT_THAT(refusal_of(hydra), AllOf(HasSubstr("Hydra"), HasSubstr("set MASTER_PORT")));
    const Context context = context_from(hydra + Values{{"MASTER_PORT", "29600"}});
    EXPECT_EQ(context.rank, 1U);
    EXPECT_EQ(context.local_world_size, 4U);
    EXPECT_EQ(context.master_addr, "127.0.0.1");
    EXPECT_EQ(context.master_port, 29600);
}

TEST(MpiEnvironment, SlurmGivesNodesAndTheHostOfRankZero) {
    const Context context = context_from(kSlurm);
    EXPECT_EQ(context.rank, 5U);
    EXPECT_EQ(context.world_size, 7U);
    EXPECT_EQ(context.local_rank, 1U);
    EXPECT_EQ(context.local_world_size, 3U);
    EXPECT_EQ(context.group_rank, 2U);
    EXPECT_EQ(context.group_world_size, 3U);
    EXPECT_EQ(context.master_addr, "gpu07");
    EXPECT_EQ(context.master_port, port_of_job("slurm-4711.0"));
    EXPECT_EQ(context.job, "slurm-4711.0");
}

TEST(MpiEnvironment, RequeuedSlurmJobIsAnotherJob) {
    const Context first = context_from(kSlurm + Values{{"SLURM_RESTART_COUNT", "0"}});
    EXPECT_EQ(first.job, "slurm-4711.0");
    const Context second = context_from(kSlurm + Values{{"SLURM_RESTART_COUNT", "2"}});
    EXPECT_EQ(second.job, "slurm-4711.0-restart2");
    EXPECT_EQ(second.master_port, port_of_job("slurm-4711.0-restart2"));
}

TEST(MpiEnvironment, SlurmBatchScriptIsAWorldOfOne) {
    const Context context =
        context_from({{"SLURM_PROCID", "0"}, {"SLURM_NTASKS", "8"}, {"SLURM_JOB_ID", "4711"}});
    EXPECT_EQ(context.world_size, 1U);
}

TEST(MpiEnvironment, WorldOfOneNeedsNoMaster) {
    const Context context = context_from(open_mpi(0, 1, 0, 1));
    EXPECT_EQ(context.world_size, 1U);
    EXPECT_EQ(context.master_addr, "");
}

TEST(MpiEnvironment, TheInnermostLauncherCounts) {
    // mpirun and mpiexec start their daemons by srun, whose variables their processes inherit.
    EXPECT_EQ(context_from(kSlurm + open_mpi(1, 2, 1, 2)).world_size, 2U);
    // `regroup run` under either of them.
    const Context worker = context_from(kSlurm + open_mpi(1, 2, 1, 2) +
                                        Values{{"RANK", "7"},
                                               {"WORLD_SIZE", "9"},
                                               {"MASTER_ADDR", "10.0.0.1"},
                                               {"MASTER_PORT", "29500"}});
    EXPECT_EQ(worker.rank, 7U);
    EXPECT_EQ(worker.master_addr, "10.0.0.1");
    EXPECT_THAT(refusal_of(kSlurm + Values{{"RANK", "1"}}), HasSubstr("has RANK but not"));
}

TEST(MpiEnvironment, MissingOrMalformedVariableIsNamed) {
    for (const char* name : {"SLURM_LOCALID", "SLURM_NODEID", "SLURM_STEP_NUM_NODES"}) {
        Values values = kSlurm;
        values.erase(name);
        EXPECT_THAT(refusal_of(values), HasSubstr(std::string(name) + " is not set")) << name;
        EXPECT_THAT(refusal_of(kSlurm + Values{{name, "x"}}),
                    HasSubstr(std::string(name) + "=\"x\" is not a number"))
            << name;
    }
    for (const char* counts : {"", "2", "2(x2)", "2(x", "x"}) {
        EXPECT_THAT(refusal_of(kSlurm + Values{{"SLURM_STEP_TASKS_PER_NODE", counts}}),
                    HasSubstr("SLURM_STEP_TASKS_PER_NODE"))
            << counts;
    }
    EXPECT_THAT(refusal_of(open_mpi(0, 4, 0, 4) + Values{{"MASTER_PORT", "0"}}),
                HasSubstr("MASTER_PORT"));
    EXPECT_THAT(refusal_of(open_mpi(4, 4, 0, 4)), HasSubstr("is not below"));
}

TEST(MpiEnvironment, HostListsAreReadToTheirFirstHost) {
    EXPECT_EQ(first_host_of("login"), "login");
    EXPECT_EQ(first_host_of("a,b"), "a");
    EXPECT_EQ(first_host_of("n[001-128],m2"), "n001");
    EXPECT_EQ(first_host_of("n[7,9-11]"), "n7");
    EXPECT_EQ(first_host_of("rack[2-3]node[04-05].cluster,x"), "rack2node04.cluster");
    EXPECT_EQ(first_host_of("n[7"), "n7");
    EXPECT_EQ(first_host_of(""), "");
}

TEST(MpiEnvironment, PortsStayInTheirRange) {
    std::set<std::uint16_t> ports;
    for (int job = 0; job < 1000; ++job) {
        const std::uint16_t port = port_of_job("slurm-" + std::to_string(job) + ".0");
        EXPECT_GE(port, 20000);
        EXPECT_LT(port, 32000);
        ports.insert(port);
    }
    EXPECT_GT(ports.size(), 900U) << "they spread";
}

}  // namespace
}  // namespace regroup
