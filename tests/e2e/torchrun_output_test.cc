// SPDX-License-Identifier: Apache-2.0
//
// Redirect, tee, filters, prefixes and log folders, as torchrun's flags describe them.
#include <filesystem>
#include <fstream>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

namespace fs = std::filesystem;

const Words kTalk{"say=out", "complain=err"};

class TorchrunOutput : public EndToEnd {
   protected:
    // The one run folder in `base`; empty if there is not exactly one.
    [[nodiscard]] fs::path run_folder(const std::string& base = "logs") const {
        std::vector<fs::path> found;
        for (const auto& entry : fs::directory_iterator(fs::path(folder()) / base)) {
            found.push_back(entry.path());
        }
        EXPECT_THAT(found, SizeIs(1));
        return found.empty() ? fs::path() : found.front();
    }
    [[nodiscard]] static Words files_below(const fs::path& base) {
        Words names;
        for (const auto& entry : fs::recursive_directory_iterator(base)) {
            if (entry.is_regular_file()) {
                names.push_back(fs::relative(entry.path(), base).string());
            }
        }
        return names;
    }
    [[nodiscard]] Words lines_with(const std::string& text, const std::string& output) const {
        Words found;
        for (const std::string& line : lines_of(output)) {
            if (line.find(text) != line.npos) {
                found.push_back(line);
            }
        }
        return found;
    }
};

TEST_F(TorchrunOutput, RedirectedStreamsGoToFilesOnly) {
    Program job = run_probe(
        {"--nproc-per-node=2", "--rdzv-id=j1", "--standalone", "--log-dir=logs", "--redirects=3"},
        kTalk);
    ASSERT_EQ(job.wait(), 0) << job.output();
    const fs::path base = run_folder();
    EXPECT_THAT(base.filename().string(), MatchesRegex("j1_[A-Za-z0-9]{8}"));
    EXPECT_THAT(files_below(base),
                UnorderedElementsAre("attempt_0/0/stdout.log", "attempt_0/0/stderr.log",
                                     "attempt_0/1/stdout.log", "attempt_0/1/stderr.log"));
    EXPECT_EQ(read_file((base / "attempt_0/1/stdout.log").string()), "out\n");
    EXPECT_EQ(read_file((base / "attempt_0/1/stderr.log").string()), "err\n");
    EXPECT_THAT(lines_with("out", job.output()), IsEmpty());
    EXPECT_THAT(lines_with("]:err", job.output()), IsEmpty());
    EXPECT_EQ(fs::status(base).permissions() & fs::perms::all, fs::perms::owner_all);
}

TEST_F(TorchrunOutput, TeedStreamsAreShownAfterTheRoleAndLocalRank) {
    Program job = run_probe(
        {"--nproc-per-node=2", "--standalone", "--log-dir=logs", "--role=gpu", "--tee=0:1,1:2"},
        kTalk);
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(files_below(run_folder()),
                UnorderedElementsAre("attempt_0/0/stdout.log", "attempt_0/1/stderr.log"));
    EXPECT_THAT(lines_with("[gpu0]:out", job.output()), SizeIs(1));
    EXPECT_THAT(lines_with("[gpu1]:err", job.output()), SizeIs(1));
    // A stream that is not teed is shown in the default form.
    EXPECT_THAT(lines_with(":1] out", job.output()), SizeIs(1));
}

TEST_F(TorchrunOutput, RedirectAndTeeTogetherAreTheUnionInFiles) {
    Program job = run_probe({"--standalone", "--log-dir=logs", "-r1", "-t2"}, kTalk);
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(files_below(run_folder()),
                UnorderedElementsAre("attempt_0/0/stdout.log", "attempt_0/0/stderr.log"));
    EXPECT_THAT(lines_with("[default0]:err", job.output()), SizeIs(1));
    EXPECT_THAT(lines_with("out", job.output()), IsEmpty());
}

TEST_F(TorchrunOutput, PrefixTemplateComesFromTheFlagOrItsVariable) {
    const std::string text = "${role_name}/${local_rank}/${rank}/${unknown}> ";
    Program job = run_probe(
        {"--standalone", "--log-dir=logs", "--tee=1", "--log-line-prefix-template=" + text}, kTalk,
        {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=wrong"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), HasSubstr("default/0/0/${unknown}> out\n"));
    Program other = run_probe({"--standalone", "--log-dir=logs2", "--tee=1"}, kTalk,
                              {"TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=<${rank}>"});
    ASSERT_EQ(other.wait(), 0) << other.output();
    EXPECT_THAT(other.output(), HasSubstr("<0>out\n"));
}

TEST_F(TorchrunOutput, FilterShowsSomeLocalRanksAndKeepsAllFiles) {
    Program job = run_probe({"--nproc-per-node=3", "--standalone", "--log-dir=logs", "--tee=3",
                             "--local-ranks-filter=1"},
                            kTalk);
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(lines_with("]:out", job.output()), UnorderedElementsAre("[default1]:out"));
    EXPECT_THAT(files_below(run_folder()), SizeIs(6));
    Program plain =
        run_probe({"--nproc-per-node=2", "--standalone", "--local-ranks-filter=0"}, kTalk);
    ASSERT_EQ(plain.wait(), 0) << plain.output();
    EXPECT_THAT(lines_with("] out", plain.output()), SizeIs(1));
}

TEST_F(TorchrunOutput, LinesWithANeedleAreCopiedToTheFilteredFile) {
    Program job =
        run_probe({"--nproc-per-node=2", "--standalone", "--log-dir=logs", "--tee=3",
                   "--duplicate-stdout-filters=line 1,nothing", "--duplicate-stderr-filters=err"},
                  {"lines=3", "complain=an err"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    const fs::path attempt = run_folder() / "attempt_0";
    EXPECT_THAT(lines_of(read_file((attempt / "filtered_stdout.log").string())),
                UnorderedElementsAre("[default0]:line 1 of 3", "[default1]:line 1 of 3"));
    EXPECT_THAT(lines_of(read_file((attempt / "filtered_stderr.log").string())),
                UnorderedElementsAre("[default0]:an err", "[default1]:an err"));
}

TEST_F(TorchrunOutput, EachRestartHasAFolderOfItsOwn) {
    Program job = run_probe({"--standalone", "--log-dir=logs", "--redirects=1", "--max-restarts=1"},
                            {"say=hello", "restart=0?exit=3"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(files_below(run_folder()),
                UnorderedElementsAre("attempt_0/0/stdout.log", "attempt_1/0/stdout.log"));
}

TEST_F(TorchrunOutput, LogFileThatIsFullBeginsAnew) {
    Program job =
        run_probe({"--standalone", "--log-dir=logs", "--redirects=1", "--log-file-size=100k"},
                  {"lines=20000"});
    ASSERT_EQ(job.wait(), 0) << job.output();
    const fs::path worker = run_folder() / "attempt_0/0";
    EXPECT_THAT(files_below(worker), UnorderedElementsAre("stdout.log", "stdout.log.1"));
    EXPECT_LE(fs::file_size(worker / "stdout.log"), 100U << 10U);
    EXPECT_LE(fs::file_size(worker / "stdout.log.1"), 100U << 10U);
    // Nothing is lost between the two.
    const Words kept = lines_of(read_file((worker / "stdout.log.1").string()) +
                                read_file((worker / "stdout.log").string()));
    EXPECT_EQ(kept.back(), "line 19999 of 20000");
    int number = 0;
    ASSERT_EQ(std::sscanf(kept.at(1).c_str(), "line %d of", &number), 1) << kept.at(1);
    EXPECT_EQ(kept.size(), 20000U - static_cast<std::size_t>(number) + 1);
}

TEST_F(TorchrunOutput, EventsAreJsonLinesOnRequest) {
    Program job = run_probe(
        {"--standalone", "--nproc-per-node=2", "--event-log-handler=console", "--role=actor"},
        {"rank=1?exit=5", "rank=0?hold"});
    ASSERT_EQ(job.wait(), 5) << job.output();
    EXPECT_THAT(lines_with("\"torchelastic.worker.status.START\"", job.output()), SizeIs(2));
    const Words failed = lines_with("\"torchelastic.worker.status.FAILED\"", job.output());
    ASSERT_THAT(failed, SizeIs(1)) << job.output();
    EXPECT_THAT(failed.front(),
                saying("\"global_rank\":1", "\"role\":\"actor\"", "\\\"exit_code\\\":[5]"));
    EXPECT_THAT(lines_with("\"torchelastic.worker.status.TERMINATED\"", job.output()), SizeIs(1));
}

// ---- The name torchrun.

class TorchrunAlias : public TorchrunOutput {
   protected:
    void SetUp() override {
        link_ = folder() + "/bin/torchrun";
        fs::create_directories(folder() + "/bin");
        fs::create_symlink(regroup_program(), link_);
    }
    [[nodiscard]] Program torchrun(const Words& arguments, const Words& environment = {}) const {
        return Program({Words{link_} + arguments,
                        Words{"PROBE_DIR=" + folder(), "TMPDIR=" + folder()} + environment,
                        folder()});
    }
    [[nodiscard]] Program torchrun_probe(const Words& flags, const Words& steps,
                                         const Words& environment = {}) const {
        return torchrun(flags + Words{"--no-python", probe_program()} + steps, environment);
    }

   private:
    std::string link_;
};

TEST_F(TorchrunAlias, FillsInArgumentsAsPythonTemplatesAndRunOnlyBracedNames) {
    const Words program{"/bin/echo", "$$ $local_rank ${local_rank} $HOME"};
    Program of_torchrun = torchrun(Words{"--standalone", "--no-python"} + program);
    EXPECT_EQ(of_torchrun.wait(), 0) << of_torchrun.output();
    EXPECT_EQ(of_torchrun.output(), "$ 0 0 $HOME\n");
    Program of_run = run(Words{"--standalone"} + program);
    EXPECT_THAT(ended(of_run), exits(0, " $$ $local_rank 0 $HOME\n"));
}

TEST_F(TorchrunAlias, OnlyTheOutputOfTheWorkersIsShown) {
    Program job = torchrun_probe({"--standalone"}, kTalk);
    ASSERT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(lines_of(job.output()), UnorderedElementsAre("out", "err"));
    // After a success the folder of the error files is removed.
    for (const auto& entry : fs::directory_iterator(folder())) {
        EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("torchelastic")));
    }
}

TEST_F(TorchrunAlias, NothingStaysInTheTemporaryFolderAfterSigkill) {
    const auto left = [&] {
        std::vector<std::string> names;
        for (const auto& entry : fs::directory_iterator(folder())) {
            const std::string name = entry.path().filename().string();
            if (name.starts_with("torchelastic") || name.starts_with("watchdog")) {
                names.push_back(name);
            }
        }
        return names;
    };
    for (const bool of_agent : {false, true}) {
        const std::string mark = of_agent ? "second" : "first";
        Program job = torchrun_probe({"--standalone"}, {"mark=" + mark, "hold"},
                                     {"TORCHELASTIC_ENABLE_FILE_TIMER=1"});
        ASSERT_THAT(await_marks(mark, 1), SizeIs(1)) << job.output();
        EXPECT_THAT(left(), SizeIs(2));
        const std::vector<pid_t> agents = children_of(job.pid());
        ASSERT_THAT(agents, SizeIs(1));
        ::kill(of_agent ? agents.front() : job.pid(), SIGKILL);
        job.wait();
        EXPECT_TRUE(eventually([&] { return left().empty(); })) << of_agent;
    }
}

TEST_F(TorchrunAlias, ExitCodesAreTorchruns) {
    EXPECT_EQ(torchrun_probe({"--standalone"}, {"exit=0"}).wait(), 0);
    EXPECT_EQ(torchrun_probe({"--standalone"}, {"exit=7"}).wait(), 1);
    EXPECT_EQ(torchrun_probe({"--standalone"}, {"exit=2"}).wait(), 1);
    EXPECT_EQ(torchrun_probe({"--standalone"}, {"raise=11"}).wait(), 1);
    EXPECT_EQ(torchrun({"--no-such-flag", "x"}).wait(), 2);
    EXPECT_EQ(torchrun({"--nnodes"}).wait(), 2);
    Program stopped = torchrun_probe({"--standalone"}, {"mark=up", "hold"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << stopped.output();
    stopped.signal(SIGTERM);
    EXPECT_EQ(stopped.wait(), 1) << stopped.output();
    EXPECT_EQ(stopped.ended_by(), 0);
}

TEST_F(TorchrunAlias, FailureEndsWithTorchrunsSummary) {
    Program job =
        torchrun_probe({"--standalone", "--nproc-per-node=2"}, {"rank=1?raise=11", "hold"});
    ASSERT_EQ(job.wait(), 1) << job.output();
    EXPECT_THAT(job.output(),
                saying(probe_program() + " FAILED\n", "\nFailures:\n", "\n  <NO_OTHER_FAILURES>\n",
                       "\nRoot Cause (first observed failure):\n[0]:\n  time      : ",
                       "\n  rank      : 1 (local_rank: 1)\n  exitcode  : -11 (pid: ",
                       ")  (SIGSEGV)\n  error_file: <N/A>\n  traceback : Signal 11 "
                       "(SIGSEGV) received by PID "));
}

TEST_F(TorchrunAlias, ParentsErrorFileIsOnlyWrittenFromTheWorkersErrorFile) {
    const std::string file = folder() + "/parent.json";
    const Words environment{"TORCHELASTIC_ERROR_FILE=" + file};
    const auto fail = [&](const std::string& script) {
        Program job = torchrun({"--standalone", "--no-python", "/bin/sh", "-c", script + "exit 3"},
                               environment);
        EXPECT_EQ(job.wait(), 1) << job.output();
    };
    fail("");
    EXPECT_FALSE(fs::exists(file)) << read_file(file);
    fail(R"(echo '{"message": "disk is gone"}' > "$TORCHELASTIC_ERROR_FILE"; )");
    EXPECT_THAT(read_file(file), HasSubstr("disk is gone"));
}

TEST_F(TorchrunAlias, ScriptThatExitsByItselfUnderRunPathLeavesNoErrorFile) {
    std::ofstream(folder() + "/leave.py") << "import sys\nsys.exit(7)\n";
    std::ofstream(folder() + "/fail.py") << "raise ValueError('shard 7')\n";
    Program leaves = torchrun({"--standalone", "--run-path", "leave.py"});
    EXPECT_THAT(ended(leaves), exits(1, "exitcode  : 7 ", "error_file: <N/A>"));
    Program fails = torchrun({"--standalone", "--run-path", "fail.py"});
    EXPECT_THAT(ended(fails), exits(1, "exitcode  : 1 ", "  ValueError: shard 7"));
}

// A thread that needs the interpreter while it ends would abort the process.
TEST_F(TorchrunAlias, ThreadsOfAScriptUnderRunPathComeToTheirEnd) {
    std::ofstream(folder() + "/thread.py") << R"(
import sys, threading
ready, over = threading.Event(), threading.Event()
def finish():
    ready.set()
    over.wait()
    open("came", "w").close()
threading.Thread(target=finish, daemon=True).start()
ready.wait()
sys.setswitchinterval(1000)  # No other thread runs before this one waits.
over.set()
)";
    Program job = torchrun({"--standalone", "--run-path", "thread.py"});
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_TRUE(fs::exists(folder() + "/came"));
}

TEST_F(TorchrunAlias, ProgramRunsUnderPythonByDefault) {
    Program job = torchrun({"--standalone", "no-such-script"});
    EXPECT_THAT(ended(job), exits(2, "no-such-script", "--no-python"));
}

TEST_F(TorchrunAlias, NodesOnOneMachineMayMeetAtLocalhost) {
    const Words flags{"--nnodes=2", "--rdzv-backend=c10d", "--rdzv-id=x",
                      "--rdzv-endpoint=localhost:" + std::to_string(unused_port())};
    Program one = torchrun_probe(flags + Words{"--local-addr=127.0.0.2"}, {"mark=up"});
    Program other = torchrun_probe(flags + Words{"--local-addr=127.0.0.3"}, {"mark=up"});
    EXPECT_EQ(one.wait(), 0) << one.output();
    EXPECT_EQ(other.wait(), 0) << other.output();
    EXPECT_THAT(last_marks("up"), SizeIs(2));
}

TEST_F(TorchrunAlias, NodeRankIsNotUsedByADynamicRendezvous) {
    Program job = torchrun_probe({"--nnodes=1", "--node-rank=1", "--rdzv-backend=c10d",
                                  "--rdzv-endpoint=127.0.0.1:" + std::to_string(unused_port())},
                                 {"exit=0"});
    EXPECT_THAT(ended(job), exits(0, "--node-rank 1 is not used"));
}

TEST_F(TorchrunAlias, FolderRunsAsAPythonProgram) {
    fs::create_directories(folder() + "/package");
    std::ofstream(folder() + "/package/__main__.py") << "print('from the folder')\n";
    Program job = torchrun({"--standalone", "package"});
    EXPECT_THAT(ended(job), exits(0, "from the folder\n"));
}

TEST_F(TorchrunAlias, PythonOfItsVirtualEnvironmentIsTaken) {
    const fs::path environment = folder();
    std::ofstream(environment / "pyvenv.cfg") << "home = /usr/bin\n";
    std::ofstream(environment / "bin/python3") << "#!/bin/sh\necho own python: \"$@\"\n";
    fs::permissions(environment / "bin/python3", fs::perms::owner_all);
    std::ofstream(environment / "script.py") << "";
    Program job = torchrun({"--standalone", "script.py", "x"});
    EXPECT_THAT(ended(job), exits(0, "own python: -u script.py x\n"));
}

TEST_F(TorchrunOutput, EventsWithNamesThatAreNoUtf8AreWritten) {
    Program job =
        run_probe({"--standalone", "--event-log-handler=console", "--role=r\xe9"}, {"exit=0"});
    EXPECT_THAT(ended(job), exits(0, "status.SUCCEEDED"));
}

}  // namespace
}  // namespace regroup::testing
