// SPDX-License-Identifier: Apache-2.0
//
// The environment, ranks, store and command line of a worker.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using ::testing::Ge;
using ::testing::Key;

class RunEnvironment : public EndToEnd {
   protected:
    // An executable shell script.
    std::string write_script(const std::string& name, const std::string& body) const {
        const std::string path = folder() + "/" + name;
        std::filesystem::create_directories(std::filesystem::path(path).parent_path());
        std::ofstream(path) << "#!/bin/sh\n" << body;
        std::filesystem::permissions(path, std::filesystem::perms::owner_all);
        return path;
    }
    // A script in place of a program. It writes its name and arguments to the file `args`.
    std::string write_recorder(const std::string& name) const {
        return write_script(name, "printf '%s\\n' \"" + name + "\" \"$@\" > \"$PROBE_DIR/args\"\n");
    }
    [[nodiscard]] std::string with_fake_programs() const {
        return "PATH=" + folder() + "/bin:/usr/bin:/bin";
    }
    [[nodiscard]] Words recorded() const { return lines_of(read_file(folder() + "/args")); }
};

// The text of a variable, or a marker that equals no text.
std::string value(const Mark& mark, const std::string& name) {
    const auto found = mark.find(name);
    return found == mark.end() ? "(not set)" : found->second;
}

void expect_variables(const Mark& mark, const std::map<std::string, std::string>& expected) {
    for (const auto& [name, text] : expected) {
        EXPECT_EQ(value(mark, name), text) << name;
    }
}

TEST_F(RunEnvironment, WorkersOfOneNodeGetAllDocumentedVariablesAndNoOthers) {
    Program job = run_probe({"--standalone", "--nproc-per-node=2", "--max-restarts=3",
                             "--role=trainer", "--rdzv-id=train-7", "--log-dir=runs"},
                            {"mark=up"}, {"OWN=kept as it is", "RANK=77", "WORLD_SIZE=99"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    const auto up = marks("up")[1];
    ASSERT_THAT(up, SizeIs(2));
    for (const auto& [rank, mark] : up) {
        const std::string number = std::to_string(rank);
        std::map<std::string, std::string> expected{
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
            {"MASTER_PORT", value(mark, "MASTER_PORT")},
            {"TORCHELASTIC_RESTART_COUNT", "0"},
            {"TORCHELASTIC_MAX_RESTARTS", "3"},
            {"TORCHELASTIC_RUN_ID", "train-7"},
            {"TORCHELASTIC_USE_AGENT_STORE", "True"},
            {"TORCHELASTIC_ERROR_FILE",
             folder() + "/runs/train-7/round_1/rank0000" + number + ".error.json"},
            {"TORCHELASTIC_SIGNALS_TO_HANDLE", "SIGTERM,SIGINT,SIGHUP,SIGQUIT"},
            {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "1"},
            {"OMP_NUM_THREADS", "1"},
            {"NCCL_PROFILER_PLUGIN", value(mark, "NCCL_PROFILER_PLUGIN")},
            {"REGROUP_ROUND", "1"},
            {"REGROUP_MASTER_NODE_ADDR", "127.0.0.1"},
            {"OWN", "kept as it is"},
        };
        expect_variables(mark, expected);
        EXPECT_THAT(std::atoi(value(mark, "MASTER_PORT").c_str()), Ge(1));
        EXPECT_TRUE(std::filesystem::is_regular_file(value(mark, "NCCL_PROFILER_PLUGIN")));
        // Variables that the test gave the launcher, and values that the probe adds to the
        // environment.
        for (const char* name : {"REGROUP_AGENT_SOCKET", "REGROUP_COLLECTIVES", "REGROUP_WORKER_ID",
                                 "PROBE_DIR", "REGROUP_TEST_PROGRAM", "holders", "PATH", "TMPDIR",
                                 "LD_LIBRARY_PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS",
                                 "UBSAN_OPTIONS", "pid", "argument0"}) {
            expected[name];
        }
        for (const auto& [name, text] : mark) {
            EXPECT_THAT(expected, Contains(Key(name)));
        }
    }
}

TEST_F(RunEnvironment, VariablesSetByTheUserAreKept) {
    Program job = run_probe({"--nproc-per-node=2"}, {"mark=up"},
                            {"OMP_NUM_THREADS=4", "TORCH_NCCL_ASYNC_ERROR_HANDLING=3"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    expect_variables(mark("up", 1),
                     {{"OMP_NUM_THREADS", "4"}, {"TORCH_NCCL_ASYNC_ERROR_HANDLING", "3"}});
    EXPECT_THAT(job.output(), Not(HasSubstr("OMP_NUM_THREADS")));
}

TEST_F(RunEnvironment, PluginOfTheUserStaysAndTheLauncherSaysSoOnce) {
    Program job = run_probe({"--nproc-per-node=2"}, {"mark=up"}, {"NCCL_PROFILER_PLUGIN=mine"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    expect_variables(mark("up", 1), {{"NCCL_PROFILER_PLUGIN", "mine"}});
    const Words lines = lines_of(job.output());
    EXPECT_EQ(std::ranges::count_if(lines,
                                    [](const std::string& line) {
                                        return line.find("NCCL_PROFILER_PLUGIN") != line.npos;
                                    }),
              1);
}

TEST_F(RunEnvironment, UserTurnsThePluginOff) {
    Program job = run_probe({}, {"mark=up"}, {"NCCL_PROFILER_PLUGIN=none"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    expect_variables(mark("up", 1), {{"NCCL_PROFILER_PLUGIN", "none"}});
    EXPECT_THAT(job.output(), Not(HasSubstr("NCCL_PROFILER_PLUGIN")));
}

TEST_F(RunEnvironment, OneWorkerMayUseAllThreads) {
    Program job = run_probe({}, {"mark=up"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_EQ(value(mark("up", 1), "OMP_NUM_THREADS"), "(not set)");
}

TEST_F(RunEnvironment, ErrorFileIsEmptyWhenNothingIsKept) {
    Program job = run_probe({"--log-dir=/dev/null"}, {"mark=up"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_EQ(value(mark("up", 1), "TORCHELASTIC_ERROR_FILE"), "");
    EXPECT_FALSE(std::filesystem::exists(folder() + "/regroup-runs"));
}

TEST_F(RunEnvironment, NodesOfDifferentSizesAndRolesShareOneWorld) {
    const std::string endpoint = "127.0.0.1:" + std::to_string(unused_port());
    const Words steps{"store", "mark=up"};
    Program first =
        run_probe(node(1, "3", endpoint) + Words{"--nproc-per-node=1", "--role=actor"}, steps);
    Program second =
        run_probe(node(2, "3", endpoint) + Words{"--nproc-per-node=3", "--role=learner"}, steps);
    Program third =
        run_probe(node(3, "3", endpoint) + Words{"--nproc-per-node=2", "--role=actor"}, steps);
    for (Program* node : {&first, &second, &third}) {
        EXPECT_EQ(node->wait(), 0) << node->output();
    }
    const auto up = marks("up")[1];
    ASSERT_THAT(up, SizeIs(6));
    struct Expected {
        std::string group_rank, local_rank, local_world_size, role, role_rank, role_world_size;
    };
    const std::vector<Expected> world{
        {"0", "0", "1", "actor", "0", "3"},   {"1", "0", "3", "learner", "0", "3"},
        {"1", "1", "3", "learner", "1", "3"}, {"1", "2", "3", "learner", "2", "3"},
        {"2", "0", "2", "actor", "1", "3"},   {"2", "1", "2", "actor", "2", "3"},
    };
    for (std::uint32_t rank = 0; rank < world.size(); ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const Expected& expected = world[rank];
        expect_variables(up.at(rank), {{"RANK", std::to_string(rank)},
                                       {"WORLD_SIZE", "6"},
                                       {"GROUP_WORLD_SIZE", "3"},
                                       {"GROUP_RANK", expected.group_rank},
                                       {"LOCAL_RANK", expected.local_rank},
                                       {"LOCAL_WORLD_SIZE", expected.local_world_size},
                                       {"ROLE_NAME", expected.role},
                                       {"ROLE_RANK", expected.role_rank},
                                       {"ROLE_WORLD_SIZE", expected.role_world_size},
                                       {"TORCHELASTIC_RUN_ID", "job"},
                                       {"MASTER_ADDR", "127.0.0.2"},
                                       {"MASTER_PORT", up.at(0).at("MASTER_PORT")}});
    }
    // Each rank has met its neighbour through the store at that address and port.
    EXPECT_THAT(first.output(), HasSubstr("[127.0.0.2:0] read word of 1\n"));
    EXPECT_THAT(second.output(), HasSubstr("[127.0.0.3:3] read word of 4\n"));
    EXPECT_THAT(third.output(), HasSubstr("[127.0.0.4:5] read word of 0\n"));
}

TEST_F(RunEnvironment, StaticBackEndHasTheMasterAndRanksOfItsFlags) {
    const std::string port = std::to_string(unused_port());
    const auto flags = [&](const std::string& rank, const std::string& address) {
        return Words{"--nnodes=2",
                     "--nproc-per-node=2",
                     "--node-rank=" + rank,
                     "--master-port=" + port,
                     "--master-addr=127.0.0.1",
                     "--local-addr=" + address};
    };
    const Words steps{"store", "mark=up"};
    // Ordered by name, the nodes would have the opposite ranks.
    Program second = run_probe(flags("1", "127.0.0.2"), steps);
    Program first = run_probe(flags("0", "127.0.0.3"), steps);
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    const auto up = marks("up")[1];
    ASSERT_THAT(up, SizeIs(4));
    for (const auto& [rank, mark] : up) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        expect_variables(mark, {{"MASTER_ADDR", "127.0.0.1"},
                                {"MASTER_PORT", port},
                                {"GROUP_RANK", rank < 2 ? "0" : "1"},
                                {"WORLD_SIZE", "4"},
                                {"TORCHELASTIC_RUN_ID", "none"},
                                {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
    }
    EXPECT_THAT(first.output(), HasSubstr("[127.0.0.3:0] read word of 1\n"));
    EXPECT_THAT(second.output(), HasSubstr("[127.0.0.2:3] read word of 0\n"));
}

TEST_F(RunEnvironment, StaticStoreOfANewRoundIsFreshOnTheSamePort) {
    const std::string port = std::to_string(unused_port());
    Program job = run_probe({"--nproc-per-node=2", "--master-port=" + port, "--max-restarts=1"},
                            {"store", "mark=up", "restart=0,rank=0?exit=1", "restart=0?hold"});
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_EQ(value(mark("up", 1), "MASTER_PORT"), port);
    EXPECT_EQ(value(mark("up", 2), "MASTER_PORT"), port);
}

TEST_F(RunEnvironment, ProgramThatIsNotPythonRunsAsItIsWithItsArguments) {
    const Words odd{"--nnodes", "9", "--", "", "two words", "$HOME \"quoted\"", "-m", "*.py"};
    write_recorder("bin/program");
    Program job = run(Words{"program"} + odd, {with_fake_programs()});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_EQ(recorded(), Words{"bin/program"} + odd);
}

TEST_F(RunEnvironment, DoubleDashBeforeTheProgramIsRemoved) {
    write_recorder("bin/program");
    Program job = run({"--nproc_per_node=1", "--", "program", "--", "-x"}, {with_fake_programs()});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(recorded(), ElementsAre("bin/program", "--", "-x"));
}

TEST_F(RunEnvironment, EmptyValueIsNotTakenFromTheProgram) {
    // As from --rdzv-id=$SLURM_JOB_ID where there is no Slurm.
    write_recorder("bin/program");
    Program job = run({"--rdzv-id=", "program", "more"}, {with_fake_programs()});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(recorded(), ElementsAre("bin/program", "more"));
}

TEST_F(RunEnvironment, PythonFilesRunUnderPython) {
    write_recorder("bin/python3");
    std::ofstream(folder() + "/train.py") << "raise SystemExit(1)\n";
    Program job = run({"train.py", "--epochs", "3"}, {with_fake_programs()});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(recorded(), ElementsAre("bin/python3", "-u", "train.py", "--epochs", "3"));
}

TEST_F(RunEnvironment, ModulesRunUnderPython) {
    write_recorder("bin/python3");
    Program job = run({"-m", "package.train", "-m", "x"}, {with_fake_programs()});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(recorded(), ElementsAre("bin/python3", "-u", "-m", "package.train", "-m", "x"));
}

TEST_F(RunEnvironment, PythonExecNamesAnotherInterpreter) {
    const std::string other = write_recorder("other-python");
    std::ofstream(folder() + "/train.py") << "raise SystemExit(1)\n";
    Program job = run({"train.py"}, {"PYTHON_EXEC=" + other});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(recorded(), ElementsAre("other-python", "-u", "train.py"));
}

TEST_F(RunEnvironment, NoPythonRunsTheFileItself) {
    const std::string script = write_recorder("train.py");
    Program job = run({"--no-python", script, "a"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(recorded(), ElementsAre("train.py", "a"));
}

TEST_F(RunEnvironment, FlagsHaveUnderscoreFormsAndDefaultsInTheEnvironment) {
    Program job = run_probe({"--nproc_per_node", "3", "--standalone"}, {"mark=up"},
                            {"PET_NPROC_PER_NODE=2", "PET_MAX_RESTARTS=5", "PET_ROLE=trainer"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    const auto up = marks("up")[1];
    ASSERT_THAT(up, SizeIs(3));
    expect_variables(up.at(0), {{"TORCHELASTIC_MAX_RESTARTS", "5"}, {"ROLE_NAME", "trainer"}});
}

TEST_F(RunEnvironment, WorkersAreCountedByCpusWhereThereAreNoGpus) {
    cpu_set_t cpus;
    CPU_ZERO(&cpus);
    ASSERT_EQ(::sched_getaffinity(0, sizeof cpus, &cpus), 0);
    struct Case {
        std::string given;
        std::string gpus;
        int expected;
    };
    for (const Case& one :
         {Case{"cpu", "", CPU_COUNT(&cpus)}, Case{"auto", "", CPU_COUNT(&cpus)}}) {
        SCOPED_TRACE(one.given + " of '" + one.gpus + "'");
        Program job = run_probe({"--nproc-per-node=" + one.given}, {"rank=0?mark=count"},
                                {"CUDA_VISIBLE_DEVICES=" + one.gpus});
        ASSERT_EQ(job.wait(), 0) << job.output();
        EXPECT_EQ(value(mark("count", 1), "WORLD_SIZE"), std::to_string(one.expected));
    }
}

}  // namespace
}  // namespace regroup::testing
