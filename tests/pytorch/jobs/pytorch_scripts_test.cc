// SPDX-License-Identifier: Apache-2.0
//
// Scripts from tutorials, on one node: each prints the same as under torchrun.
#include <fstream>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/pytorch/jobs/pytorch.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Json = nlohmann::json;

class PyTorchScripts : public PyTorchOfEach {
   protected:
    /// The content of the file `name`, which a script wrote; null if it is missing.
    [[nodiscard]] Json read_json(const std::string& name) const {
        const std::string text = read_file(folder() + "/" + name);
        return Json::parse(text, nullptr, false);
    }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PyTorchScripts);
INSTANTIATE_TEST_SUITE_P(With, PyTorchScripts, ::testing::ValuesIn(interpreters_and_preloaded()),
                         name_of);

TEST_P(PyTorchScripts, TutorialTrainerRunsWithTheTutorialsFlags) {
    Program trainer(job({"--nproc-per-node=2", "--master_port=" + std::to_string(unused_port())},
                        "ddp_trainer.py", {"--max_epochs", "5", "--batch_size", "32"}));
    ASSERT_EQ(trainer.wait(kPyTorchLimit), 0) << trainer.output();
    const auto lines = worker_lines(trainer);
    ASSERT_THAT(lines, SizeIs(2)) << trainer.output();
    for (const auto& [rank, all] : lines) {
        const std::string name = "[GPU: " + std::to_string(rank) + "] ";
        for (int epoch = 0; epoch < 5; ++epoch) {
            EXPECT_THAT(all, Contains(name + "Epoch: " + std::to_string(epoch) +
                                      " | Batchsize: 32 | Steps: 32"));
        }
        EXPECT_THAT(all.back(), StartsWith(name + "Parameters: "));
    }
    EXPECT_EQ(lines.at(0).back().substr(9), lines.at(1).back().substr(9));
    EXPECT_EQ(count_of(trainer, "OMP_NUM_THREADS"), 1U) << trainer.output();
}

TEST_P(PyTorchScripts, ReplicasStayIdenticalAndAgreeWithAveragingByHand) {
    Program step(job({"--standalone", "--nproc_per_node", "2"}, "gradients.py"));
    ASSERT_EQ(step.wait(kPyTorchLimit), 0) << step.output();
    for (const std::string rank : {"0", "1"}) {
        for (const std::string what : {"losses differ", "parameters are bit-identical",
                                       "parameters moved", "average_gradients agrees with DDP"}) {
            EXPECT_EQ(count_of(step, "rank " + rank + ": " + what + ": True\n"), 1U)
                << step.output();
        }
    }
}

TEST_P(PyTorchScripts, EveryCollectiveHasItsResultOnEveryRank) {
    Program tour(job({"--nproc-per-node=4"}, "collectives.py"));
    ASSERT_EQ(tour.wait(kPyTorchLimit), 0) << tour.output();
    const auto lines = worker_lines(tour);
    ASSERT_THAT(lines, SizeIs(4)) << tour.output();
    const std::string all = "[[1.0, 10.0], [2.0, 20.0], [3.0, 30.0], [4.0, 40.0]]";
    const auto own = [](std::uint32_t rank) {
        return "[" + std::to_string(rank + 1) + ".0, " + std::to_string(rank + 1) + "0.0]";
    };
    for (std::uint32_t rank = 0; rank < 4; ++rank) {
        const std::string name = "rank " + std::to_string(rank) + ": ";
        const std::string twice = std::to_string(2 * (rank + 1));
        std::vector<std::string> expected{
            "local " + std::to_string(rank) + " of 4 by gloo",
            "all_reduce sum [10.0, 100.0]",
            "all_reduce max [4.0, 40.0]",
            "all_reduce product [24.0, 240000.0]",
            "broadcast [2.0, 20.0]",
            "all_gather " + all,
            "scatter [" + twice + ".0, " + twice + "0.0]",
            "broadcast_object_list [{'epoch': 3, 'by': 0}, 'second']",
            "all_gather_object [{'rank': 0}, {'rank': 1}, {'rank': 2}, {'rank': 3}]",
            "recv " + own((rank + 3) % 4),
            "irecv " + own((rank + 1) % 4),
            "monitored_barrier passed",
            "initialized False",
        };
        if (rank == 0) {
            expected.push_back("gather " + all);
        }
        if (rank == 3) {
            expected.emplace_back("reduce [10.0, 100.0]");
        }
        if (rank % 2 == 0) {
            expected.emplace_back("new_group all_reduce [4.0, 40.0]");
        }
        for (std::string& line : expected) {
            line.insert(0, name);
        }
        EXPECT_THAT(lines.at(rank), ::testing::IsSupersetOf(expected));
    }
}

TEST_P(PyTorchScripts, WorkersReadTheirRanksFromTheEnvironment) {
    const std::string port = std::to_string(unused_port());
    Program two(job({"--nproc-per-node=2", "--max-restarts=3", "--role=trainer", "--log-dir=logs",
                     "--master-port=" + port},
                    "environment.py", {"--out", "seen"}));
    ASSERT_EQ(two.wait(kPyTorchLimit), 0) << two.output();
    for (int rank = 0; rank < 2; ++rank) {
        const std::string number = std::to_string(rank);
        SCOPED_TRACE("rank " + number);
        const Json seen = read_json("seen." + number);
        ASSERT_TRUE(seen.is_object()) << two.output();
        EXPECT_EQ(seen["is_torchelastic_launched"], true);
        EXPECT_EQ(seen["get_rank"], rank);
        EXPECT_EQ(seen["get_world_size"], 2);
        EXPECT_EQ(seen["get_backend"], "gloo");
        const Json& environment = seen["environment"];
        const std::map<std::string, std::string> expected{
            {"LOCAL_RANK", number},
            {"RANK", number},
            {"WORLD_SIZE", "2"},
            {"LOCAL_WORLD_SIZE", "2"},
            {"GROUP_RANK", "0"},
            {"GROUP_WORLD_SIZE", "1"},
            {"ROLE_NAME", "trainer"},
            {"ROLE_RANK", number},
            {"ROLE_WORLD_SIZE", "2"},
            {"MASTER_ADDR", "127.0.0.1"},
            {"MASTER_PORT", port},
            {"TORCHELASTIC_RESTART_COUNT", "0"},
            {"TORCHELASTIC_MAX_RESTARTS", "3"},
            {"TORCHELASTIC_RUN_ID", "none"},
            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
            {"OMP_NUM_THREADS", "1"},
        };
        for (const auto& [name, value] : expected) {
            EXPECT_EQ(environment.value(name, "(not set)"), value) << name;
        }
        EXPECT_THAT(environment.value("TORCHELASTIC_ERROR_FILE", ""),
                    StartsWith(folder() + "/logs/"));
        EXPECT_EQ(seen["process"]["leads_session"], true);
        EXPECT_EQ(seen["process"]["leads_group"], true);
        EXPECT_EQ(seen["process"]["unbuffered"], true);
        EXPECT_EQ(seen["process"]["blocked_signals"], 0);
        EXPECT_EQ(seen["process"]["ignored_signals"], 0);
        EXPECT_THAT(seen["process"]["inherited_descriptors"], SizeIs(0));
        EXPECT_EQ(seen["process"]["directory"], folder());
        EXPECT_EQ(seen["process"]["arguments"], Json({"--out", "seen"}));
    }
}

TEST_P(PyTorchScripts, GroupsMeetAtTheMastersAddressWrittenOut) {
    const std::vector<Words> back_ends{{"--standalone"},
                                       {"--master-port=" + std::to_string(unused_port())}};
    for (const Words& back_end : back_ends) {
        SCOPED_TRACE(back_end.front());
        Program sum(job(back_end + Words{"--nproc-per-node=2"}, "tcp_init.py"));
        EXPECT_EQ(sum.wait(kPyTorchLimit), 0) << sum.output();
        for (const std::string rank : {"0", "1"}) {
            EXPECT_EQ(count_of(sum, "rank " + rank + ": sum 2\n"), 1U) << sum.output();
        }
    }
}

TEST_P(PyTorchScripts, ExceptionUnderRecordIsInTheErrorFileAndInTheReport) {
    Program job_of_two(job({"--nproc-per-node=2", "--log-dir=logs", "--rdzv-id=r", "--standalone"},
                           "record_error.py", {"--fail_rank", "1"}));
    ASSERT_EQ(job_of_two.wait(kPyTorchLimit), 1) << job_of_two.output();
    EXPECT_THAT(job_of_two.output(), HasSubstr("failed: rank 1 on "));
    EXPECT_THAT(job_of_two.output(), HasSubstr("ValueError: no data for rank 1"));
    const Json error = read_json("logs/r/round_1/rank00001.error.json");
    ASSERT_TRUE(error.is_object()) << job_of_two.output();
    const Json& message = error["message"];
    EXPECT_EQ(message["message"], "ValueError: no data for rank 1");
    EXPECT_THAT(message["extraInfo"]["py_callstack"].get<std::string>(), HasSubstr("in main"));
    EXPECT_GT(std::stoll(message["extraInfo"]["timestamp"].get<std::string>()), 1'600'000'000);
}

TEST_P(PyTorchScripts, ProcessesThatTheScriptSpawnsMeetInTheStoreOfTheLauncher) {
    Program spawner(job({"--nproc-per-node=1"}, "spawn.py", {"--nprocs", "2"}));
    EXPECT_EQ(spawner.wait(kPyTorchLimit), 0) << spawner.output();
    for (const char* line : {"process 0: sum 3\n", "process 1: sum 3\n", "all joined\n"}) {
        EXPECT_EQ(count_of(spawner, line), 1U) << spawner.output();
    }
}

TEST_P(PyTorchScripts, ExceptionInASpawnedProcessEndsTheWorker) {
    Program spawner(job({"--nproc-per-node=1"}, "spawn.py", {"--nprocs=2", "--fail_index=1"}));
    EXPECT_EQ(spawner.wait(kPyTorchLimit), 1) << spawner.output();
    EXPECT_THAT(spawner.output(), HasSubstr("ValueError: process 1 has had enough"));
    EXPECT_EQ(count_of(spawner, "all joined"), 0U);
    EXPECT_TRUE(eventually([&] { return spawner.family().empty(); }));
}

TEST_P(PyTorchScripts, ProcessesStartedByHandMeetInTheStoreOfTheLauncher) {
    const std::string port = std::to_string(unused_port());
    Program host = run_probe({"--master-port=" + port}, {"mark=up", "await=finish"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << host.output();
    const auto start = [&](const std::string& rank) {
        return std::make_unique<Program>(
            by_hand(GetParam(), "tcp_init.py", {},
                    {"MASTER_ADDR=127.0.0.1", "MASTER_PORT=" + port, "WORLD_SIZE=2", "RANK=" + rank,
                     "TORCHELASTIC_USE_AGENT_STORE=True", "TORCHELASTIC_RESTART_COUNT=0"}));
    };
    // The later rank starts first. Neither rank needs to listen.
    const auto second = start("1");
    const auto first = start("0");
    EXPECT_EQ(first->wait(kPyTorchLimit), 0) << first->output();
    EXPECT_EQ(second->wait(kPyTorchLimit), 0) << second->output();
    EXPECT_EQ(count_of(*first, "rank 0: sum 2\n"), 1U) << first->output();
    EXPECT_EQ(count_of(*second, "rank 1: sum 2\n"), 1U) << second->output();
    release("finish");
    EXPECT_EQ(host.wait(), 0) << host.output();
}

// The contract of torch.distributed.launch for older scripts.
class PyTorchLegacyLaunch : public PyTorchScripts {
   protected:
    void SetUp() override {
        Program help({{regroup_program(), "launch", "--help"}, {}, folder()});
        if (help.wait() != 0) {
            GTEST_SKIP() << "there is no 'regroup launch' in this build";
        }
    }
    [[nodiscard]] ProgramSpec launch(const Words& flags, const Words& arguments) const {
        ProgramSpec spec = job(flags, "local_rank_argument.py", arguments);
        spec.command.at(1) = "launch";
        return spec;
    }
};

GTEST_ALLOW_UNINSTANTIATED_PARAMETERIZED_TEST(PyTorchLegacyLaunch);
INSTANTIATE_TEST_SUITE_P(With, PyTorchLegacyLaunch,
                         ::testing::ValuesIn(interpreters_and_preloaded()), name_of);

TEST_P(PyTorchLegacyLaunch, LocalRankIsTheScriptsFirstArgument) {
    Program legacy(launch({"--nproc_per_node=2"}, {"--epochs", "3"}));
    ASSERT_EQ(legacy.wait(kPyTorchLimit), 0) << legacy.output();
    const auto lines = worker_lines(legacy);
    ASSERT_THAT(lines, SizeIs(2)) << legacy.output();
    for (const auto& [rank, all] : lines) {
        const std::string number = std::to_string(rank);
        EXPECT_THAT(all, Contains(AllOf(StartsWith("rank " + number + ": local rank " + number +
                                                   " by argument, first argument --local"),
                                        HasSubstr("epochs 3, sum 1"))));
    }
}

TEST_P(PyTorchLegacyLaunch, UseEnvLeavesTheArgumentsAlone) {
    Program legacy(launch({"--nproc_per_node=2", "--use_env"}, {"--epochs", "3"}));
    ASSERT_EQ(legacy.wait(kPyTorchLimit), 0) << legacy.output();
    const auto lines = worker_lines(legacy);
    ASSERT_THAT(lines, SizeIs(2)) << legacy.output();
    for (const auto& [rank, all] : lines) {
        const std::string number = std::to_string(rank);
        EXPECT_THAT(all, Contains("rank " + number + ": local rank " + number +
                                  " by variable, first argument --epochs, epochs 3, sum 1"));
    }
}

}  // namespace
}  // namespace regroup::testing
