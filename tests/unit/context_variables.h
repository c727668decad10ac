// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <cstdlib>
#include <map>
#include <set>
#include <string>

#include <gtest/gtest.h>

namespace regroup::testing {

using Values = std::map<std::string, std::string>;

/// The Context made of exactly these variables.
inline Context context_from(const Values& values) {
    static const std::set<std::string> names = {"RANK",
                                                "WORLD_SIZE",
                                                "MASTER_ADDR",
                                                "MASTER_PORT",
                                                "LOCAL_RANK",
                                                "LOCAL_WORLD_SIZE",
                                                "GROUP_RANK",
                                                "GROUP_WORLD_SIZE",
                                                "REGROUP_ROUND",
                                                "TORCHELASTIC_RUN_ID",
                                                "TORCHELASTIC_RESTART_COUNT",
                                                "TORCHELASTIC_MAX_RESTARTS",
                                                "TORCHELASTIC_USE_AGENT_STORE",
                                                "OMPI_COMM_WORLD_RANK",
                                                "OMPI_COMM_WORLD_SIZE",
                                                "OMPI_COMM_WORLD_LOCAL_RANK",
                                                "OMPI_COMM_WORLD_LOCAL_SIZE",
                                                "PMIX_NAMESPACE",
                                                "OMPI_MCA_ess_base_jobid",
                                                "PMI_RANK",
                                                "PMI_SIZE",
                                                "MPI_LOCALRANKID",
                                                "MPI_LOCALNRANKS",
                                                "SLURM_PROCID",
                                                "SLURM_NTASKS",
                                                "SLURM_LOCALID",
                                                "SLURM_NODEID",
                                                "SLURM_JOB_ID",
                                                "SLURM_STEP_ID",
                                                "SLURM_RESTART_COUNT",
                                                "SLURM_STEP_NUM_TASKS",
                                                "SLURM_STEP_NUM_NODES",
                                                "SLURM_STEP_TASKS_PER_NODE",
                                                "SLURM_STEP_NODELIST",
                                                "REGROUP_MASTER_NODE_ADDR",
                                                "REGROUP_CPU_TRANSPORT"};
    for (const std::string& name : names) {
        ::unsetenv(name.c_str());
    }
    for (const auto& [name, value] : values) {
        EXPECT_TRUE(names.contains(name)) << name;
        ::setenv(name.c_str(), value.c_str(), 1);
    }
    return Context::from_environment();
}

}  // namespace regroup::testing
