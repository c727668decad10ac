// SPDX-License-Identifier: Apache-2.0
//
// The limits that `ulimit -a` shows, each one low. Batch systems set them.
#include <csignal>
#include <regex>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

struct Limit {
    std::string name;
    std::string option;  ///< Of the shell's ulimit.
    std::string value;
};

std::ostream& operator<<(std::ostream& out, const Limit& limit) {
    return out << limit.name;
}

class RunLimits : public EndToEnd {
   protected:
    /// `regroup` with `words`, below a shell that sets its soft limit.
    [[nodiscard]] Program start(const std::string& option, const std::string& value,
                                const Words& words) const {
        // The output of this test goes to a file, which the limit should not concern.
        return Program({Words{"/bin/bash", "-c",
                              "(ulimit -S -" + option + " " + value +
                                  " && exec \"$0\" \"$@\") 2>&1 | /bin/cat; "
                                  "exit ${PIPESTATUS[0]}",
                              regroup_program()} +
                            words,
                        {"PROBE_DIR=" + folder()},
                        folder()});
    }
};

class RunLimitsOf : public RunLimits, public ::testing::WithParamInterface<Limit> {};

// Two ranks form a group, one fails, and both are restarted.
TEST_P(RunLimitsOf, JobsRunAndWorkersHaveTheLimit) {
    const std::string shown = "/bin/bash -c 'echo limit $(ulimit -S -" + GetParam().option + ")'; ";
    Program job =
        start(GetParam().option, GetParam().value,
              {"run", "--standalone", "--nproc-per-node=2", "--max-restarts=1", "/bin/sh", "-c",
               shown + "exec " + probe_program() +
                   " store join barrier restart=0,rank=1?exit=3 restart=0?hold"});
    EXPECT_THAT(ended(job), exits(0, "limit " + GetParam().value));
    EXPECT_THAT(job.family(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Limits, RunLimitsOf,
    ::testing::Values(Limit{"CoreFileSize", "c", "0"}, Limit{"DataSegment", "d", "1000000"},
                      Limit{"FileSize", "f", "100000"}, Limit{"PendingSignals", "i", "100"},
                      Limit{"LockedMemory", "l", "0"}, Limit{"OpenFiles", "n", "128"},
                      Limit{"MessageQueues", "q", "0"}, Limit{"StackSize", "s", "256"},
                      Limit{"CpuTime", "t", "30"}, Limit{"Processes", "u", "4000"},
                      Limit{"VirtualMemory", "v", "4000000"}, Limit{"FileLocks", "x", "0"}),
    [](const auto& named) { return named.param.name; });

TEST_F(RunLimits, AgentOfManyWorkersRaisesItsOpenFilesAndWorkersKeepTheLimit) {
    Program job = start("n", "48",
                        {"run", "--standalone", "--nproc-per-node=8", "/bin/bash", "-c",
                         "echo files $(ulimit -S -n); exec " + probe_program() + " store"});
    EXPECT_EQ(job.wait(), 0) << job.output();
    for (const std::string& line : lines_of(job.output())) {
        EXPECT_TRUE(line.find("] files ") == std::string::npos || line.ends_with("] files 48"))
            << line;
    }
    EXPECT_THAT(job.output(), HasSubstr("] files 48"));
}

TEST_F(RunLimits, WorkersBeyondTheOpenFilesAreRefusedWithBothNumbers) {
    Program job({{"/bin/bash", "-c", "ulimit -n 64; exec \"$0\" \"$@\"", regroup_program(), "run",
                  "--standalone", "--nproc-per-node=8", "/bin/sh", "-c", "echo a worker ran"},
                 {},
                 folder()});
    EXPECT_THAT(ended(job), exits(2, "--nproc-per-node 8", "needs 100 ", "may open 64;",
                                  "ulimit -n", Not(HasSubstr("a worker ran"))));
    EXPECT_THAT(lines_of(job.output()), SizeIs(1));
}

TEST_F(RunLimits, OutputBeyondTheFileSizeIsLostAsOnAFullDisk) {
    Program job = start("f", "16",
                        {"run", "--standalone", "--log-dir=logs", probe_program(), "lines=4000",
                         "mark=up", "await=finish"});
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    EXPECT_TRUE(job.prints("(ulimit -f)")) << job.output();
    EXPECT_TRUE(job.running()) << job.output();
    release("finish");
    EXPECT_THAT(ended(job), exits(0, "line 3999 of 4000"));
}

TEST_F(RunLimits, WorkersGetTheSignalOfTheFileSize) {
    Program job = start("f", "16",
                        {"run", "--standalone", "--max-restarts=0", "/bin/sh", "-c",
                         "exec head -c 100000 /dev/zero > " + folder() + "/large"});
    EXPECT_THAT(ended(job), exits(128 + SIGXFSZ, "SIGXFSZ", "ulimit -f"));
}

TEST_F(RunLimits, WorkersDoNotGetASignalThatWasIgnored) {
    Program job({{"/bin/bash", "-c", "trap '' XFSZ; ulimit -S -f 16; exec \"$0\" \"$@\"",
                  regroup_program(), "run", "--standalone", "--max-restarts=0", "/bin/sh", "-c",
                  "head -c 100000 /dev/zero > " + folder() + "/large; echo head ended with $?"},
                 {},
                 folder()});
    EXPECT_THAT(ended(job), exits(0, "head ended with 1"));
}

TEST_F(RunLimits, DaemonOutlivesTheFileSize) {
    Program daemon = start("f", "1", {"serve", "--listen=127.0.0.1:0", "--event-log=events.jsonl"});
    ASSERT_TRUE(daemon.prints("listening on ")) << daemon.output();
    const std::string said = daemon.output();
    std::smatch port;
    ASSERT_TRUE(std::regex_search(said, port, std::regex("listening on \\S*:(\\d+)\n"))) << said;
    for (int i = 0; i < 3; ++i) {
        Program job =
            run_probe({"--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:" + port[1].str(),
                       "--rdzv-id=job" + std::to_string(i), "--nproc-per-node=2"},
                      {"store"});
        EXPECT_EQ(job.wait(), 0) << job.output() << daemon.output();
    }
    EXPECT_TRUE(daemon.prints("cannot write events.jsonl")) << daemon.output();
    EXPECT_TRUE(daemon.running()) << daemon.output();
}

TEST_F(RunLimits, JournalBeyondTheFileSizeIsRefusedAsOnAFullDisk) {
    Program daemon = start("f", "16", {"serve", "--listen=127.0.0.1:0", "--state=state"});
    EXPECT_NE(daemon.wait(), 0) << daemon.output();
    EXPECT_THAT(daemon.output(), HasSubstr("(ulimit -f)"));
}

}  // namespace
}  // namespace regroup::testing
