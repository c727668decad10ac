// SPDX-License-Identifier: Apache-2.0
//
// --preload: workers are forked from a Python process that has imported modules.
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include <nlohmann/json.hpp>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Json = nlohmann::json;
namespace fs = std::filesystem;

constexpr const char* kPython = "/usr/bin/python3";

class RunPreload : public EndToEnd {
   protected:
    void SetUp() override {
        if (!fs::exists(kPython)) {
            GTEST_SKIP() << "there is no " << kPython << " (Debian: python3)";
        }
    }

    /// Writes a file into the folder of the test.
    void write(const std::string& name, const std::string& text) const {
        fs::create_directories(fs::path(folder() + "/" + name).parent_path());
        std::ofstream(folder() + "/" + name) << text;
    }

    /// `regroup run --preload` of a Python program given by words.
    [[nodiscard]] Program preload(const std::string& modules, const Words& flags,
                                  const Words& program, const Words& environment = {}) const {
        return run(Words{"--standalone", "--preload=" + modules} + flags + program,
                   Words{std::string("PYTHON_EXEC=") + kPython} + environment);
    }

    /// The pid of the fork server: the child of the agent that is no worker.
    [[nodiscard]] static pid_t server_of(const Program& job) {
        for (const pid_t pid : job.family()) {
            const std::string line = read_file("/proc/" + std::to_string(pid) + "/cmdline");
            if (line.find("fork server") != line.npos) {
                return pid;
            }
        }
        return 0;
    }

    /// The words after `key` in lines "KEY WORDS" that the workers printed.
    [[nodiscard]] static Words printed(const Program& job, const std::string& key) {
        Words found;
        for (const std::string& line : lines_of(job.output())) {
            const std::size_t at = line.find("] " + key + " ");
            if (at != line.npos) {
                found.push_back(line.substr(at + 3 + key.size()));
            }
        }
        return found;
    }
};

TEST_F(RunPreload, ForkedWorkerSeesWhatAnExecutedOneSees) {
    const std::string script = PYTHON_PROGRAMS "/process_facts.py";
    write("package/__init__.py", "");
    write("package/facts.py", read_file(script));
    write("folder/__main__.py", read_file(script));
    write("facts.py", read_file(script));
    write("socket.py", "raise ImportError('the name of a module of Python')\n");
    fs::create_symlink("folder", folder() + "/link");
    const std::string code = "exec(open('facts.py').read())";
    const std::string python = kPython;
    const std::vector<Words> programs{
        {"facts.py", "a", "b c", ""},
        {script, "--flag"},
        {"-m", "package.facts", "x"},
        {"--no-python", python, "-B", "-W", "error::ImportWarning", "facts.py", "-m"},
        {"--no-python", python, "-u", "-m", "package.facts", "x"},
        {"--no-python", python, "-c", code, "x", "y"},
        {"--no-python", python, "folder", "x"},
        {"--no-python", python, "-I", script},
        {"--no-python", python, "-I", "link", "x"},
        {"./folder/../facts.py", "x"},
        {"--run-path", "facts.py", "x"},
        {"--cpus-per-rank=1", "facts.py"},
    };
    for (const Words& program : programs) {
        const std::string facts = folder() + "/facts.json";
        std::vector<Json> seen;
        for (const bool forked : {true, false}) {
            fs::remove(facts);
            const Words flags = forked ? Words{"--preload=json,threading"} : Words{};
            Program job = run(Words{"--standalone"} + flags + program,
                              {"PYTHON_EXEC=" + python, "FACTS=" + facts, "EMPTY=", "BYTES=\xff\n",
                               "OMP_NUM_THREADS=1"});
            ASSERT_EQ(job.wait(), 0) << job.output();
            EXPECT_EQ(job.output().find("has imported json,threading") != std::string::npos, forked)
                << job.output();
            seen.push_back(Json::parse(read_file(facts), nullptr, false));
            ASSERT_TRUE(seen.back().is_object()) << job.output();
            // The file that --run-path and -c execute differs in this alone.
            seen.back().erase("file");
        }
        for (const auto& [name, value] : seen[0].items()) {
            EXPECT_EQ(value, seen[1][name])
                << program.at(0) << " " << program.at(1) << ": " << name;
        }
    }
}

TEST_F(RunPreload, PathsOutsideAsciiNeedNoLocale) {
    const std::string name = "ü\xff.py";
    write(name, "import sys\nprint('name', ascii(sys.argv[0]))\n");
    Words names;
    for (const Words& flags : {Words{"--preload=json"}, Words{}}) {
        Program job = run(Words{"--standalone"} + flags + Words{name},
                          {std::string("PYTHON_EXEC=") + kPython, "LC_ALL=C", "PYTHONUTF8=0",
                           "PYTHONCOERCECLOCALE=0"});
        ASSERT_EQ(job.wait(), 0) << job.output();
        EXPECT_THAT(job.output(), Not(HasSubstr("has no effect")));
        const Words seen = printed(job, "name");
        names.insert(names.end(), seen.begin(), seen.end());
    }
    ASSERT_THAT(names, SizeIs(2));
    EXPECT_EQ(names[0], names[1]);
}

TEST_F(RunPreload, WorkersAreChildrenOfTheAgentWithTheirOwnOutputAndRandomNumbers) {
    write("train.py",
          "import os, random\n"
          "print('parent', os.getppid(), flush=True)\n"
          "print('random', random.random())\n"
          "print('rank', os.environ['RANK'], os.environ['LOCAL_RANK'])\n");
    Program job = preload("json", {"--nproc-per-node=3"}, {"train.py"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    const Words parents = printed(job, "parent");
    ASSERT_THAT(parents, SizeIs(3)) << job.output();
    EXPECT_THAT(parents, Each(parents.front()));
    const Words numbers = printed(job, "random");
    EXPECT_THAT(std::set<std::string>(numbers.begin(), numbers.end()), SizeIs(3)) << job.output();
    for (const char* rank : {"0", "1", "2"}) {
        EXPECT_THAT(lines_of(job.output()),
                    Contains(HasSubstr(":" + std::string(rank) + "] rank " + rank + " " + rank)));
    }
}

TEST_F(RunPreload, ExitCodesSignalsAndTracebacksAreThoseOfAnExecutedWorker) {
    write("fail.py",
          "import os, signal, sys\n"
          "way = sys.argv[1]\n"
          "if way == 'code': sys.exit(7)\n"
          "if way == 'text': sys.exit('no data')\n"
          "if way == 'kill': os.kill(os.getpid(), signal.SIGKILL)\n"
          "if way == 'abort': os.abort()\n"
          "if way == 'interrupt': raise KeyboardInterrupt\n"
          "def inner(): raise ValueError('planned')\n"
          "if way == 'error': inner()\n");
    for (const char* way : {"code", "text", "kill", "abort", "interrupt", "error"}) {
        std::vector<std::optional<int>> codes;
        std::vector<Words> traces;
        for (const Words& flags : {Words{"--preload=json"}, Words{}}) {
            Program job = run(Words{"--standalone"} + flags + Words{"fail.py", way},
                              {std::string("PYTHON_EXEC=") + kPython});
            codes.push_back(job.wait());
            Words trace;
            for (const std::string& line : lines_of(job.output())) {
                if (line.find(":0] ") != line.npos) {
                    trace.push_back(line.substr(line.find("] ")));
                }
            }
            traces.push_back(trace);
        }
        EXPECT_EQ(codes[0], codes[1]) << way;
        EXPECT_EQ(traces[0], traces[1]) << way;
    }
    Program missing = preload("json", {}, {"-m", "no_such_module"});
    EXPECT_THAT(ended(missing), exits(1, "No module named no_such_module"));
}

TEST_F(RunPreload, RestartAfterAFailureIsForkedToo) {
    write("train.py",
          "import os, sys\n"
          "import slow\n"
          "print('import', slow.pid)\n"
          "if os.environ['TORCHELASTIC_RESTART_COUNT'] == '0' and os.environ['RANK'] == '1':\n"
          "    os.kill(os.getpid(), 9)\n"
          "sys.stdin.read()\n");
    write("slow.py", "import os, time\npid = os.getpid()\n");
    Program job = preload("slow", {"--nproc-per-node=2", "--max-restarts=1"}, {"train.py"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    // All were forked from the process that imported the module.
    const Words pids = printed(job, "import");
    EXPECT_THAT(pids, SizeIs(AnyOf(3, 4))) << job.output();
    EXPECT_THAT(pids, Each(pids.front()));
}

TEST_F(RunPreload, SlowStartAfterAFailureIsToldOnce) {
    write("train.py",
          "import os, sys, time\n"
          "time.sleep(0.6)  # As if it imported.\n"
          "print('it has started', flush=True)\n"
          "sys.exit(int(os.environ['TORCHELASTIC_RESTART_COUNT']) < 2)\n");
    const std::string shell =
        "sleep 0.6; echo it has started; exit $((TORCHELASTIC_RESTART_COUNT < 2))";
    const std::string python = std::string("PYTHON_EXEC=") + kPython;
    const auto told = [&](const Words& words) {
        Program job =
            run(Words{"--standalone", "--max-restarts=2", "--restart-delay=0"} + words, {python});
        EXPECT_EQ(job.wait(), 0) << job.output();
        const Words lines = lines_of(job.output());
        return std::count_if(lines.begin(), lines.end(), [](const std::string& line) {
            return line.find("--preload=MODULES") != line.npos;
        });
    };
    EXPECT_EQ(told({"train.py"}), 1);
    EXPECT_EQ(told({"--preload=none", "train.py"}), 0);
    EXPECT_EQ(told({"--preload=json", "train.py"}), 0);
    EXPECT_EQ(told({"--no-python", "/bin/sh", "-c", shell}), 0);
}

TEST_F(RunPreload, KilledForkServerIsStartedAgainAndWorkersGoOn) {
    write("train.py",
          "import os, slow, sys, time\n"
          "count = os.environ['TORCHELASTIC_RESTART_COUNT']\n"
          "print('import', count, slow.pid, flush=True)\n"
          "while not os.path.exists('go' + count): time.sleep(0.01)\n"
          "sys.exit(1 if count == '0' else 0)\n");
    write("slow.py", "import os\npid = os.getpid()\n");
    Program job = preload("slow", {"--nproc-per-node=2", "--max-restarts=1"}, {"train.py"});
    ASSERT_TRUE(eventually([&] { return printed(job, "import").size() == 2; })) << job.output();
    const pid_t first = server_of(job);
    ASSERT_NE(first, 0);
    ::kill(first, SIGKILL);
    ASSERT_TRUE(eventually([&] {
        const pid_t next = server_of(job);
        return next != 0 && next != first;
    })) << job.output();
    EXPECT_TRUE(job.running());
    const pid_t second = server_of(job);
    write("go0", "");
    ASSERT_TRUE(eventually([&] { return printed(job, "import").size() == 4; })) << job.output();
    write("go1", "");
    EXPECT_EQ(job.wait(), 0) << job.output();
    const Words lines = printed(job, "import");
    EXPECT_THAT(lines, Contains("0 " + std::to_string(first)));
    EXPECT_THAT(lines, Contains("1 " + std::to_string(second))) << job.output();
}

TEST_F(RunPreload, StoppedForkServerDelaysNothingForLong) {
    write("train.py",
          "import os, sys, time\n"
          "print('up', os.getpid(), flush=True)\n"
          "while not os.path.exists('go'): time.sleep(0.01)\n"
          "sys.exit(0 if os.environ['TORCHELASTIC_RESTART_COUNT'] != '0' else 1)\n");
    Program job = preload("json", {"--max-restarts=1"}, {"train.py"});
    ASSERT_TRUE(eventually([&] { return printed(job, "up").size() == 1; })) << job.output();
    ASSERT_NE(server_of(job), 0);
    ::kill(server_of(job), SIGSTOP);
    write("go", "");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST_F(RunPreload, ModuleThatCannotBeSharedIsNamedAndWorkersAreStartedWithout) {
    write("train.py", "import os\nprint('done', os.environ['RANK'])\n");
    write("threaded.py",
          "import threading, time\n"
          "threading.Thread(target=time.sleep, args=(60,), daemon=True).start()\n");
    write("broken.py", "raise RuntimeError('no licence')\n");
    write("ends.py", "import os\nos._exit(3)\n");
    for (const char* module : {"threaded", "broken", "ends", "no_such_module"}) {
        Program job = preload(std::string("json,") + module, {"--nproc-per-node=2"}, {"train.py"});
        EXPECT_EQ(job.wait(), 0) << job.output();
        EXPECT_THAT(printed(job, "done"), SizeIs(2)) << job.output();
        EXPECT_THAT(job.output(), HasSubstr("regroup: --preload has no effect on this node"))
            << module;
    }
    Program job = preload("json,threaded", {}, {"train.py"});
    EXPECT_THAT(ended(job), exits(0, "module threaded"));
}

TEST_F(RunPreload, TimeOfTheImportsIsNoSilenceOfWorkers) {
    write("slow.py", "import time\ntime.sleep(3)\n");
    write("train.py", "print('ran')\n");
    Program job = preload("slow", {"--hang-timeout=1", "--max-restarts=0"}, {"train.py"});
    EXPECT_THAT(ended(job), exits(0, "] ran"));
}

TEST_F(RunPreload, ModuleMayReplaceTheStandardStreams) {
    write("streams.py",
          "import io, sys\n"
          "print('imported')\n"
          "sys.stdin, sys.stdout = None, io.StringIO()\n");
    write("train.py", "import sys\nprint('done', sys.stdin, file=sys.__stdout__)\n");
    Program job = preload("streams", {"--nproc-per-node=2", "--no-python"}, {kPython, "train.py"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(printed(job, "done"), SizeIs(2)) << job.output();
    // The workers do not repeat the output of the fork server.
    EXPECT_THAT(lines_of(job.output()), Not(Contains(HasSubstr("] imported"))));
}

TEST_F(RunPreload, OtherProgramsAreStartedAsUsual) {
    for (const Words& program : {Words{"/bin/echo", "done"}, Words{kPython, "--version"}}) {
        Program job = run(Words{"--standalone", "--preload=json"} + program);
        EXPECT_THAT(ended(job), exits(0, "--preload has no effect"));
    }
    Program wrong = run({"--standalone", "--preload=a b", "train.py"});
    EXPECT_THAT(ended(wrong), exits(2, "--preload"));
}

TEST_F(RunPreload, NothingSurvivesTheLauncher) {
    write("train.py",
          "import os, subprocess, time\n"
          "subprocess.Popen(['/bin/sleep', '1000'], start_new_session=True)\n"
          "print('up', os.getpid(), flush=True)\n"
          "time.sleep(1000)\n");
    write("slow.py", "import time\ntime.sleep(1000)\n");
    for (const char* module : {"json", "slow"}) {
        for (const int signal : {SIGKILL, SIGTERM}) {
            Program job = preload(module, {"--nproc-per-node=2"}, {"train.py"});
            const bool imports = module == std::string("slow");
            ASSERT_TRUE(eventually([&] {
                return server_of(job) != 0 && (imports || printed(job, "up").size() == 2);
            })) << job.output();
            job.signal(signal);
            EXPECT_EQ(job.wait(), 128 + signal) << job.output();
            EXPECT_TRUE(eventually([&] { return job.family().empty(); })) << module;
        }
    }
}

TEST_F(RunPreload, WorkersDieWithTheAgent) {
    write("train.py", "import os, time\nprint('up', os.getpid(), flush=True)\ntime.sleep(1000)\n");
    Program job = preload("json", {"--nproc-per-node=2"}, {"train.py"});
    ASSERT_TRUE(eventually([&] { return printed(job, "up").size() == 2; })) << job.output();
    const std::vector<pid_t> agents = children_of(job.pid());
    ASSERT_THAT(agents, SizeIs(1));
    ::kill(job.pid(), SIGSTOP);  // The launcher must not be the one that kills them.
    ::kill(agents.front(), SIGKILL);
    for (const std::string& pid : printed(job, "up")) {
        EXPECT_TRUE(eventually([&] { return !is_alive(std::stoi(pid)); })) << pid;
    }
}

}  // namespace
}  // namespace regroup::testing
