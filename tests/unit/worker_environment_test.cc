// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/worker_environment.h"

#include <algorithm>

#include <gmock/gmock.h>

#include "tests/unit/protocol_samples.h"

namespace regroup::agent {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::Not;
using ::testing::StartsWith;

WorkerIdentity worker(const std::optional<rendezvous::Endpoint>& relay = std::nullopt) {
    Assignment assignment = regroup::testing::sample_assignment();
    assignment.restart_count = 2;
    WorkerIdentity identity;
    identity.place = place_of(assignment, 5, relay);
    identity.place.job = "nightly";
    identity.place.local_world_size = 8;
    identity.place.max_restarts = 3;
    identity.role = "trainer";
    identity.error_file = "/logs/rank-13.json";
    identity.signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    return identity;
}

TEST(WorkerEnvironment, EveryVariableOfTorchrunIsSet) {
    const auto environment = worker_environment({}, worker());
    for (const char* entry : {"LOCAL_RANK=5",
                              "RANK=13",
                              "WORLD_SIZE=16",
                              "LOCAL_WORLD_SIZE=8",
                              "GROUP_RANK=1",
                              "GROUP_WORLD_SIZE=2",
                              "ROLE_NAME=trainer",
                              "ROLE_RANK=8",
                              "ROLE_WORLD_SIZE=11",
                              "MASTER_ADDR=10.0.0.4",
                              "MASTER_PORT=40117",
                              "TORCHELASTIC_RESTART_COUNT=2",
                              "TORCHELASTIC_MAX_RESTARTS=3",
                              "TORCHELASTIC_RUN_ID=nightly",
                              "TORCHELASTIC_USE_AGENT_STORE=True",
                              "TORCH_NCCL_ASYNC_ERROR_HANDLING=1",
                              "TORCHELASTIC_ERROR_FILE=/logs/rank-13.json",
                              "TORCHELASTIC_SIGNALS_TO_HANDLE=SIGTERM,SIGINT,SIGHUP,SIGQUIT",
                              "REGROUP_ROUND=4",
                              "REGROUP_MASTER_NODE_ADDR=10.0.0.4"}) {
        EXPECT_THAT(environment, Contains(entry));
    }
    EXPECT_EQ(environment.size(), 20U);
}

TEST(WorkerEnvironment, RelayIsTheMasterAndTheMastersNodeIsNamedBeside) {
    const auto environment = worker_environment({"REGROUP_MASTER_NODE_ADDR=old"},
                                                worker(rendezvous::Endpoint{"127.0.0.1", 29999}));
    for (const char* entry :
         {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=29999", "REGROUP_MASTER_NODE_ADDR=10.0.0.4"}) {
        EXPECT_THAT(environment, Contains(entry));
    }
    EXPECT_EQ(environment.size(), 20U);
}

TEST(WorkerEnvironment, OtherVariablesAreInherited) {
    const auto environment =
        worker_environment({"PATH=/bin", "EMPTY=", "WITH=a=b", "OMP_NUM_THREADS=4",
                            "CUDA_VISIBLE_DEVICES=0,1", "ODD", "RANKED=1", "MY_RANK=2"},
                           worker());
    for (const char* entry : {"PATH=/bin", "EMPTY=", "WITH=a=b", "OMP_NUM_THREADS=4",
                              "CUDA_VISIBLE_DEVICES=0,1", "ODD", "RANKED=1", "MY_RANK=2"}) {
        EXPECT_THAT(environment, Contains(entry));
    }
}

TEST(WorkerEnvironment, FolderOfTheAgentsCredentialsIsNotInherited) {
    EXPECT_THAT(worker_environment({"CREDENTIALS_DIRECTORY=/run/credentials/agent"}, worker()),
                Not(Contains(StartsWith("CREDENTIALS_DIRECTORY="))));
}

TEST(WorkerEnvironment, NamesAppearOnceEvenIfInherited) {
    // As in a launcher that was itself started by a launcher.
    const auto outer =
        worker_environment({"RANK=99", "RANK=98", "MASTER_ADDR=elsewhere"}, worker());
    const auto inner = worker_environment(outer, worker());
    for (const auto& environment : {outer, inner}) {
        std::vector<std::string> names;
        for (const std::string& entry : environment) {
            names.push_back(entry.substr(0, entry.find('=')));
        }
        std::sort(names.begin(), names.end());
        EXPECT_EQ(std::adjacent_find(names.begin(), names.end()), names.end());
        EXPECT_THAT(environment, Contains("RANK=13"));
        EXPECT_THAT(environment, Contains("MASTER_ADDR=10.0.0.4"));
    }
}

TEST(WorkerEnvironment, NcclErrorHandlingOfTheUserIsKept) {
    EXPECT_THAT(worker_environment({"TORCH_NCCL_ASYNC_ERROR_HANDLING=3"}, worker()),
                Contains("TORCH_NCCL_ASYNC_ERROR_HANDLING=3"));
}

TEST(WorkerEnvironment, ErrorFileIsSetEvenIfItIsEmpty) {
    WorkerIdentity identity = worker();
    identity.error_file.clear();
    EXPECT_THAT(worker_environment({}, identity), Contains("TORCHELASTIC_ERROR_FILE="));
}

TEST(WorkerEnvironment, LauncherDecidesTheNumberOfThreads) {
    EXPECT_THAT(worker_environment({}, worker()), Not(Contains(StartsWith("OMP_NUM_THREADS="))));
}

TEST(WorkerEnvironment, OwnDevicesReplaceTheInheritedOnes) {
    WorkerIdentity identity = worker();
    identity.visible_devices = "GPU-1,GPU-2";
    EXPECT_THAT(worker_environment({"CUDA_VISIBLE_DEVICES=0,1"}, identity),
                AllOf(Contains("CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"), Contains("LOCAL_RANK=5"),
                      Not(Contains("CUDA_VISIBLE_DEVICES=0,1"))));
    identity.virtual_local_rank = true;
    EXPECT_THAT(worker_environment({"CUDA_VISIBLE_DEVICES=0,1"}, identity),
                AllOf(Contains("CUDA_VISIBLE_DEVICES=GPU-1,GPU-2"), Contains("LOCAL_RANK=0")));
}

TEST(WorkerEnvironment, VariablesAreFoundByTheirWholeName) {
    const std::vector<std::string> environment{"RANK_X=1", "RANK=", "X=RANK=3"};
    EXPECT_STREQ(find_variable(environment, "RANK_X"), "1");
    EXPECT_STREQ(find_variable(environment, "RANK"), "");
    EXPECT_STREQ(find_variable(environment, "X"), "RANK=3");
    EXPECT_EQ(find_variable(environment, "RAN"), nullptr);
    EXPECT_EQ(find_variable({}, "RANK"), nullptr);
}

}  // namespace
}  // namespace regroup::agent
