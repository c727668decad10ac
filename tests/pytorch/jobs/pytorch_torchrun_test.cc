// SPDX-License-Identifier: Apache-2.0
//
// The same command line under torchrun and under regroup run: the workers' environment and output,
// and the launchers' exit codes. The two tables below list all intended differences.
#include <filesystem>
#include <optional>
#include <regex>
#include <set>

#include <nlohmann/json.hpp>

#include "tests/pytorch/jobs/pytorch.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Json = nlohmann::json;

/// A variable that has another value under regroup, or that only regroup sets.
struct Difference {
    std::string variable;
    /// Pattern of regroup's value.
    std::string ours;
    /// Does not differ with the static back end, whose flags set it.
    bool dynamic_only;
    std::string why;
};

const std::vector<Difference>& differences() {
    static const std::vector<Difference> table{
        {"MASTER_ADDR", "127\\.0\\.0\\.1", true,
         "an address needs no resolver; torchrun gives a name"},
        {"MASTER_PORT", "[1-9]\\d*", true, "the kernel chooses it for either"},
        {"TORCHELASTIC_RUN_ID", "\\d{8}-\\d{6}-[0-9a-f]{4}", true,
         "without a rendezvous, torchrun's is a UUID; ours says when the job began"},
        {"TORCHELASTIC_ERROR_FILE",
         ".*/(round_1/rank0000\\d\\.error\\.json|torchelastic_\\w+/[^/]+/attempt_0/\\d/"
         "error\\.json)",
         false,
         "logs are kept by round and rank, and below the working directory; under the name of "
         "torchrun, as torchrun's, in a folder with another random name"},
        {"REGROUP_ROUND", "1", false, "torchrun has no such thing"},
        {"REGROUP_AGENT_SOCKET", "@regroup-[0-9A-Za-z_-]+", false,
         "nor this, for programs with the SDK"},
        {"REGROUP_WORKER_ID", "[0-9A-Za-z_-]+", false, "nor this, by which they say who they are"},
        {"REGROUP_COLLECTIVES", "/proc/[0-9]+/fd/[0-9]+", false,
         "nor this, where libraries write these collectives"},
        {"NCCL_PROFILER_PLUGIN", ".*/libnccl-profiler-regroup\\.so", false,
         "nor this, by which NCCL tells which collectives it is in"},
        {"REGROUP_MASTER_NODE_ADDR", "[0-9a-f.:]+", false,
         "nor this: the node of rank 0, where MASTER_ADDR is the agent that relays the store"},
    };
    return table;
}

/// Exit codes of a command under each launcher, as a shell shows them.
struct Outcome {
    std::string what;
    Words arguments;
    int torchrun;
    int ours;
    std::string why;
};

const std::vector<Outcome>& outcomes() {
    static const std::vector<Outcome> table{
        {"success", {"--no-python", "true"}, 0, 0, ""},
        {"a worker's own exit code",
         {"--no-python", "sh", "-c", "exit 3"},
         1,
         3,
         "schedulers and scripts decide by the code of the worker that failed"},
        {"a worker's death by a signal",
         {"--no-python", "python3", "-c", "import os; os.kill(os.getpid(), 9)"},
         1,
         128 + 9,
         "as above, as a shell says it"},
        {"an unknown flag", {"--no-such-flag", "true"}, 2, 2, ""},
        {"a program that is not there",
         {"--no-python", "no-such-program"},
         1,
         2,
         "a mistake on the command line, found before anything is started"},
        {"a value out of range", {"--nnodes=4:2", "--no-python", "true"}, 1, 2, "as above"},
    };
    return table;
}

class PyTorchTorchrun : public PyTorch, public ::testing::WithParamInterface<const char*> {
   protected:
    void SetUp() override {
        python_ = find_interpreter(GetParam());
        if (python_ == nullptr) {
            GTEST_SKIP() << "this PyTorch is not installed to compare with";
        }
    }

    /// Runs torchrun.
    [[nodiscard]] Program torchrun(const Words& arguments, const Words& environment = {}) const {
        ProgramSpec spec = by_hand(*python_, "", {}, environment);
        spec.command = Words{python_->path, "-m", "torch.distributed.run"} + arguments;
        return Program(spec);
    }
    [[nodiscard]] Program ours(const Words& arguments, const Words& environment = {}) const {
        ProgramSpec spec = job(*python_, arguments, "");
        spec.command.pop_back();
        spec.environment = spec.environment + environment;
        return Program(spec);
    }
    [[nodiscard]] const Interpreter& python() const { return *python_; }

    /// Runs both launchers with `flags`, one after the other. Each of `workers` workers must have
    /// the same process attributes and the same environment, except for the differences above.
    void compare_workers(const Words& flags, const Words& environment, int workers, bool is_static,
                         const Words& arguments = {}) const;

    /// From now on regroup is started under the name torchrun.
    void take_name_of_torchrun() {
        const std::string link = folder() + "/torchrun";
        std::filesystem::create_symlink(regroup_program(), link);
        launcher_ = {link};
    }

   private:
    [[nodiscard]] Json seen(const std::string& by, int rank) const {
        const std::string name = folder() + "/" + by + "/seen." + std::to_string(rank);
        return Json::parse(read_file(name), nullptr, false);
    }

    const Interpreter* python_ = nullptr;
    Words launcher_{regroup_program(), "run"};
};

// True for variables of this test, and for variables of one of the two programs.
bool is_of_the_test(const std::string& name) {
    return name == "PYTHON_EXEC" || name == "REGROUP_TEST_PROGRAM" || name == "PWD" ||
           name == "OLDPWD" || name == "_" || name == "SHLVL";
}

void compare_environments(const Json& theirs, const Json& ours, bool is_static) {
    std::set<std::string> names;
    for (const Json* one : {&theirs, &ours}) {
        for (const auto& [name, value] : one->items()) {
            names.insert(name);
        }
    }
    for (const std::string& name : names) {
        const std::string expected = theirs.value(name, "(not set)");
        const std::string actual = ours.value(name, "(not set)");
        if (is_of_the_test(name) || expected == actual) {
            continue;
        }
        const auto known = std::find_if(
            differences().begin(), differences().end(), [&](const Difference& difference) {
                return difference.variable == name && !(difference.dynamic_only && is_static);
            });
        EXPECT_TRUE(known != differences().end() &&
                    std::regex_match(actual, std::regex(known->ours)))
            << name << ": torchrun " << expected << ", ours " << actual;
    }
}

void PyTorchTorchrun::compare_workers(const Words& flags, const Words& environment, int workers,
                                      bool is_static, const Words& arguments) const {
    const Words command = flags + Words{script("environment.py"), "--out=seen"} + arguments;
    const auto in_folder = [&](const std::string& name, const Words& program) {
        const std::string directory = folder() + "/" + name;
        return Words{"/bin/sh", "-c",
                     "mkdir '" + directory + "' && cd '" + directory + "' && exec \"$@\"", "sh"} +
               program;
    };
    ProgramSpec spec = job(python(), {}, "");
    spec.environment = spec.environment + environment;
    spec.command =
        in_folder("theirs", Words{python().path, "-m", "torch.distributed.run"} + command);
    Program theirs(spec);
    ASSERT_EQ(theirs.wait(kPyTorchLimit), 0) << theirs.output();
    spec.command = in_folder("ours", launcher_ + command);
    Program ours(spec);
    ASSERT_EQ(ours.wait(kPyTorchLimit), 0) << ours.output();
    for (int rank = 0; rank < workers; ++rank) {
        SCOPED_TRACE("rank " + std::to_string(rank));
        const Json expected = seen("theirs", rank);
        const Json actual = seen("ours", rank);
        ASSERT_TRUE(expected.is_object()) << theirs.output();
        ASSERT_TRUE(actual.is_object()) << ours.output();
        compare_environments(expected["environment"], actual["environment"], is_static);
        for (const auto& [name, value] : expected["process"].items()) {
            if (name != "directory") {
                EXPECT_EQ(actual["process"][name], value) << name;
            }
        }
        for (const char* name : {"is_torchelastic_launched", "get_rank", "get_world_size"}) {
            EXPECT_EQ(actual[name], expected[name]) << name;
        }
    }
    EXPECT_EQ(count_of(ours, "OMP_NUM_THREADS") > 0, count_of(theirs, "OMP_NUM_THREADS") > 0);
}

INSTANTIATE_TEST_SUITE_P(Of, PyTorchTorchrun, ::testing::Values("Current", "Newest"),
                         [](const auto& info) { return std::string(info.param); });

TEST_P(PyTorchTorchrun, WorkersOfAStandaloneJobSeeTheSame) {
    compare_workers({"--standalone", "--nproc_per_node=2"}, {}, 2, false);
}

TEST_P(PyTorchTorchrun, WorkersOfAStaticJobSeeTheSame) {
    compare_workers({"--nproc-per-node=2", "--master-port=" + std::to_string(unused_port()),
                     "--role=trainer", "--max-restarts=3"},
                    {}, 2, true);
}

TEST_P(PyTorchTorchrun, WorkersOfAJobWithARendezvousSeeTheSame) {
    // One worker, which may use all threads. The user's variables are kept, except ranks.
    compare_workers({"--rdzv-backend=c10d", "--rdzv-id=train-7",
                     "--rdzv-endpoint=localhost:" + std::to_string(unused_port())},
                    {"TORCH_NCCL_ASYNC_ERROR_HANDLING=3", "RANK=77", "PET_MAX_RESTARTS=2"}, 1,
                    false);
}

TEST_P(PyTorchTorchrun, WorkersOfAnElasticJobSeeTheSame) {
    compare_workers({"--nnodes=1:2", "--rdzv-backend=c10d", "--rdzv-id=train-7",
                     "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port()),
                     "--local-addr=127.0.0.1", "--rdzv-conf=last_call_timeout=1,unknown='9'"},
                    {}, 1, false);
}

TEST_P(PyTorchTorchrun, LocalRankIsPutIntoTheArguments) {
    compare_workers({"--standalone"}, {}, 1, false, {"of-${local_rank}"});
}

TEST_P(PyTorchTorchrun, ArgumentsAreTemplatesUnderItsName) {
    take_name_of_torchrun();
    compare_workers({"--standalone"}, {}, 1, false,
                    {"of-${local_rank}", "$local_rank", "$$x", "$unknown"});
}

TEST_P(PyTorchTorchrun, WorkersPrintTheSame) {
    const Words command{"--nproc-per-node=4", script("collectives.py")};
    Program theirs = torchrun(command);
    ASSERT_EQ(theirs.wait(kPyTorchLimit), 0) << theirs.output();
    std::map<std::uint32_t, Words> expected;
    for (const std::string& line : lines_of(theirs.output())) {
        std::smatch match;
        if (std::regex_match(line, match, std::regex("rank (\\d): .*"))) {
            expected[static_cast<std::uint32_t>(std::stoul(match[1]))].push_back(line);
        }
    }
    Program mine = ours(command);
    ASSERT_EQ(mine.wait(kPyTorchLimit), 0) << mine.output();
    EXPECT_EQ(worker_lines(mine), expected);
}

TEST_P(PyTorchTorchrun, LaunchersExitWithTheCodesOfTheTable) {
    for (const Outcome& outcome : outcomes()) {
        SCOPED_TRACE(outcome.what);
        Program theirs = torchrun(outcome.arguments);
        Program mine = ours(outcome.arguments);
        EXPECT_EQ(theirs.wait(kPyTorchLimit), outcome.torchrun) << theirs.output();
        EXPECT_EQ(mine.wait(kPyTorchLimit), outcome.ours) << mine.output();
    }
}

TEST_P(PyTorchTorchrun, EveryFlagOfTorchrunIsKnown) {
    ProgramSpec spec = by_hand(python(), "", {}, {});
    // "--nnodes 1" or "--standalone 0", a line for each spelling of each flag.
    spec.command = {python().path, "-c",
                    "from torch.distributed.run import get_args_parser\n"
                    "for action in get_args_parser()._actions:\n"
                    "    for flag in action.option_strings:\n"
                    "        print(flag, 0 if action.nargs == 0 else 1)\n"};
    Program parser(spec);
    ASSERT_EQ(parser.wait(kPyTorchLimit), 0) << parser.output();
    // Plug-ins of the torchrun process, in Python.
    const std::set<std::string> python_only{"--logs-specs", "--logs_specs"};
    Words unknown;
    std::size_t flags = 0;
    for (const std::string& line : lines_of(parser.output())) {
        std::smatch match;
        if (!std::regex_match(line, match, std::regex("(--?[a-z_-]+) ([01])"))) {
            continue;
        }
        ++flags;
        const std::string flag = match[1];
        // A value that starts no job that would wait for other nodes.
        const std::string value = flag.starts_with("--") ? "=no host" : "no host";
        Program one = ours({flag + (match[2] == "1" ? value : ""), "--no-python", "true"});
        EXPECT_TRUE(one.wait().has_value()) << flag;
        if (count_of(one, "unknown flag") > 0 && !python_only.contains(flag)) {
            unknown.push_back(flag);
        }
    }
    EXPECT_GT(flags, 40U) << parser.output();
    EXPECT_THAT(unknown, IsEmpty());
}

}  // namespace
}  // namespace regroup::testing
