// SPDX-License-Identifier: Apache-2.0
//
// Effects of the machine on a job: a closed terminal, memory that runs out, CPUs, GPUs, signals.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <sched.h>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

namespace fs = std::filesystem;

class RunSurroundings : public EndToEnd {};

TEST_F(RunSurroundings, JobUnderNohupOutlivesItsTerminal) {
    Program job({Words{"/usr/bin/nohup", regroup_program(), "run", "--standalone",
                       "--nproc-per-node=2", probe_program(), "mark=up", "await=finish"},
                 {"PROBE_DIR=" + folder()},
                 folder()});
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job.output();
    // A closing terminal signals every process of the family.
    for (const pid_t pid : job.family()) {
        ::kill(pid, SIGHUP);
    }
    EXPECT_FALSE(job.wait(std::chrono::milliseconds(300))) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

/// Of one version: the folder of its hierarchy, a file of a group there, and what to write into it.
struct CgroupLimit {
    std::string base;
    std::string file;
    std::string value;
};

/// A cgroup with one of the limits, removed at the end; empty if none can be made here.
class Cgroup {
   public:
    explicit Cgroup(const std::vector<CgroupLimit>& limits) {
        for (const CgroupLimit& limit : limits) {
            const fs::path folder =
                fs::path(limit.base) / ("regroup-test-" + std::to_string(::getpid()));
            std::error_code error;
            if (!fs::exists(fs::path(limit.base) / "cgroup.procs") ||
                !fs::create_directory(folder, error)) {
                continue;
            }
            if (fs::exists(folder / limit.file) && std::ofstream(folder / limit.file)
                                                       << limit.value << std::flush) {
                folder_ = folder;
                return;
            }
            fs::remove(folder, error);
        }
    }
    ~Cgroup() {
        EXPECT_TRUE(empty() || eventually([&] { return ::rmdir(folder_.c_str()) == 0; }));
    }
    Cgroup(const Cgroup&) = delete;
    Cgroup& operator=(const Cgroup&) = delete;

    [[nodiscard]] bool empty() const { return folder_.empty(); }
    [[nodiscard]] const fs::path& folder() const { return folder_; }
    /// The command that runs `command` in it.
    [[nodiscard]] Words holding(const Words& command) const {
        return Words{
                   "/bin/sh", "-c",
                   "echo $$ > " + (folder_ / "cgroup.procs").string() + " && exec \"$0\" \"$@\""} +
               command;
    }

   private:
    fs::path folder_;
};

TEST_F(RunSurroundings, QuotaOfTheCgroupBoundsTheNumberOfWorkers) {
    cpu_set_t own;
    ASSERT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
    if (CPU_COUNT(&own) < 2) {
        GTEST_SKIP() << "one CPU is the least that a quota gives";
    }
    const Cgroup cgroup({{"/sys/fs/cgroup/cpu", "cpu.cfs_quota_us", "100000"},
                         {"/sys/fs/cgroup", "cpu.max", "100000 100000"}});
    if (cgroup.empty()) {
        GTEST_SKIP() << "no cgroup with a CPU quota can be made here";
    }
    for (const char* count : {"cpu", "auto"}) {
        Program job({cgroup.holding({regroup_program(), "run", "--standalone",
                                     std::string("--nproc-per-node=") + count, "/bin/sh", "-c",
                                     "echo world $WORLD_SIZE"}),
                     {"CUDA_VISIBLE_DEVICES="},
                     folder()});
        EXPECT_THAT(ended(job),
                    exits(0, "world 1", "because the CPU quota of the cgroup allows 1 of"));
    }
}

TEST_F(RunSurroundings, WorkerKilledByTheOomKillerIsNamedAsSuch) {
    // Enough for a launcher under sanitizers.
    const std::string bytes = std::to_string(256 << 20);
    const Cgroup cgroup({{"/sys/fs/cgroup/memory", "memory.limit_in_bytes", bytes},
                         {"/sys/fs/cgroup", "memory.max", bytes}});
    if (cgroup.empty()) {
        GTEST_SKIP() << "no memory cgroup can be made here";
    }
    std::ofstream(cgroup.folder() / "memory.swap.max") << 0;
    Program job({cgroup.holding({regroup_program(), "run", "--standalone", "--nproc-per-node=2",
                                 probe_program(), "rank=1?memory=2000", "hold"}),
                 {"PROBE_DIR=" + folder()},
                 folder()});
    EXPECT_THAT(ended(job),
                exits(128 + SIGKILL, "rank 1 on", "was ended by SIGKILL", "  evidence   the kernel",
                      AnyOf(HasSubstr("emory"), HasSubstr("oom_kill"))));
}

TEST_F(RunSurroundings, SigkillAloneIsNotTakenForAShortageOfMemory) {
    Program job = run_probe({"--standalone"}, {"raise=9"});
    EXPECT_THAT(ended(job), exits(128 + SIGKILL, Not(HasSubstr("evidence"))));
}

TEST_F(RunSurroundings, WorkersGetCoresAndThreadsOfTheirOwnOnRequest) {
    cpu_set_t own;
    ASSERT_EQ(::sched_getaffinity(0, sizeof own, &own), 0);
    if (CPU_COUNT(&own) < 2) {
        GTEST_SKIP() << "this test needs two CPUs";
    }
    Program job = run({"--standalone", "--nproc-per-node=2", "--cpus-per-rank=1",
                       "--report-bindings", "/bin/sh", "-c",
                       "grep Cpus_allowed_list /proc/self/status; echo threads $OMP_NUM_THREADS"});
    if (job.wait() == 2) {
        GTEST_SKIP() << "two workers need two cores: " << job.output();
    }
    Words masks;
    for (const std::string& line : lines_of(job.output())) {
        if (const std::size_t at = line.find("Cpus_allowed_list:"); at != line.npos) {
            masks.push_back(line.substr(at));
        }
    }
    ASSERT_THAT(masks, SizeIs(2)) << job.output();
    EXPECT_NE(masks[0], masks[1]);
    EXPECT_THAT(job.output(), AllOf(HasSubstr("local rank 0: NUMA node"), HasSubstr("threads 1"),
                                    Not(HasSubstr("OMP_NUM_THREADS is not set"))));
}

TEST_F(RunSurroundings, MoreCoresThanThereAreAreRefused) {
    Program job = run({"--standalone", "--cpus-per-rank=100000", "/bin/true"});
    EXPECT_THAT(ended(job), exits(2, "--cpus-per-rank 100000"));
}

TEST_F(RunSurroundings, VirtualLocalRankGivesEachWorkerItsOwnDevice) {
    Program job = run({"--standalone", "--nproc-per-node=2", "--virtual-local-rank", "/bin/sh",
                       "-c", "echo rank $RANK: $LOCAL_RANK on $CUDA_VISIBLE_DEVICES"},
                      {"CUDA_VISIBLE_DEVICES=4, 6"});
    EXPECT_THAT(ended(job), exits(0, "rank 0: 0 on 4\n", "rank 1: 0 on 6\n"));
    Program few = run({"--standalone", "--nproc-per-node=3", "--virtual-local-rank", "/bin/true"},
                      {"CUDA_VISIBLE_DEVICES=4,6"});
    EXPECT_THAT(ended(few), exits(2, "CUDA_VISIBLE_DEVICES=4,6 names 2 device(s)"));
}

TEST_F(RunSurroundings, WorkersSeeGpusOfTheirOwnOnRequest) {
    // Made-up GPU names, so that the test needs no GPU.
    const Words devices{"CUDA_VISIBLE_DEVICES=GPU-d, GPU-c,MIG-b,GPU-a"};
    const Words show{"/bin/sh", "-c", "echo rank $RANK: $LOCAL_RANK on $CUDA_VISIBLE_DEVICES"};
    Program one =
        run(Words{"--standalone", "--nproc-per-node=2", "--gpus-per-rank=1", "--report-bindings"} +
                show,
            devices);
    EXPECT_THAT(ended(one), exits(0, "rank 0: 0 on GPU-d\n", "rank 1: 1 on GPU-c\n",
                                  "local rank 1: CUDA_VISIBLE_DEVICES=GPU-c"));
    Program two = run(Words{"--standalone", "--nproc-per-node=2", "--gpus-per-rank=auto",
                            "--virtual-local-rank"} +
                          show,
                      devices);
    EXPECT_THAT(ended(two), exits(0, "rank 0: 0 on GPU-d,GPU-c\n", "rank 1: 0 on MIG-b,GPU-a\n"));
    Program few =
        run({"--standalone", "--nproc-per-node=5", "--gpus-per-rank=1", "/bin/true"}, devices);
    EXPECT_THAT(ended(few), exits(2, "5 workers of this node need 5 GPUs, and 4 GPUs can be seen",
                                  "CUDA_VISIBLE_DEVICES='GPU-d"));
}

TEST_F(RunSurroundings, WithoutTheFlagEveryWorkerSeesTheInheritedGpus) {
    Program job = run({"--standalone", "--nproc-per-node=2", "/bin/sh", "-c",
                       "echo rank $RANK on ${CUDA_VISIBLE_DEVICES-all}"},
                      {"CUDA_VISIBLE_DEVICES=1, 0"});
    EXPECT_THAT(ended(job), exits(0, "rank 0 on 1, 0\n", "rank 1 on 1, 0\n"));
}

TEST_F(RunSurroundings, SignalsThatAreNotHandledArePassedOn) {
    Program job =
        run({"--standalone", "/bin/sh", "-c",
             "trap 'echo got usr1; exit 0' USR1; touch up; while :; do sleep 0.05; done"});
    ASSERT_TRUE(eventually([&] { return fs::exists(folder() + "/up"); })) << job.output();
    job.signal(SIGUSR1);
    EXPECT_THAT(ended(job), exits(0, "got usr1"));
}

TEST_F(RunSurroundings, SignalsThatAreHandledEndTheJobWithThatSignal) {
    Program job =
        run({"--standalone", "--signals-to-handle=SIGTERM,SIGUSR1", "/bin/sh", "-c",
             "trap 'echo got usr1; exit 0' USR1; touch up; while :; do sleep 0.05; done"});
    ASSERT_TRUE(eventually([&] { return fs::exists(folder() + "/up"); })) << job.output();
    job.signal(SIGUSR1);
    EXPECT_THAT(ended(job), exits(128 + SIGUSR1, "got usr1"));
}

// ---- PyTorch's file timer.

TEST_F(RunSurroundings, WorkerThatDoesNotLeaveItsSectionInTimeIsEnded) {
    const std::string script =
        "test -p \"$TORCHELASTIC_TIMER_FILE\" || exit 4; "
        "if [ $RANK = 1 ]; then echo '{\"version\": 1, \"pid\": '$$', "
        "\"scope_id\": \"load\", \"expiration_time\": 1.5, \"signal\": 9}' "
        "> \"$TORCHELASTIC_TIMER_FILE\"; fi; exec sleep 100";
    Program job = run({"--standalone", "--nproc-per-node=2", "/bin/sh", "-c", script},
                      {"TORCHELASTIC_ENABLE_FILE_TIMER=1"});
    EXPECT_THAT(ended(job),
                exits(128 + SIGKILL, "has not left its section 'load' in time", "rank 1 on"));
}

TEST_F(RunSurroundings, FinishedSectionsAndForeignProcessesAreLeftAlone) {
    Program stranger({{"/bin/sleep", "100"}, {}, folder()});
    const std::string fifo = folder() + "/timers";
    const auto message = [](const std::string& pid, const std::string& time) {
        return "'{\"version\": 1, \"pid\": '" + pid +
               "', \"scope_id\": \"s\", \"expiration_time\": " + time + ", \"signal\": 9}' ";
    };
    // A section that is entered and left in one write, then garbage, then a process of another job.
    Program job = run({"--standalone", "/bin/sh", "-c",
                       "test \"$TORCHELASTIC_TIMER_FILE\" = \"" + fifo + "\" || exit 4; " +
                           "printf '%s\\n%s\\n' " + message("$$", "1.0") + message("$$", "-1") +
                           "> \"" + fifo + "\"; echo nonsense > \"" + fifo + "\"; printf '%s\\n' " +
                           message(std::to_string(stranger.pid()), "1.0") + "> \"" + fifo +
                           "\"; sleep 0.5; echo done"},
                      {"TORCHELASTIC_ENABLE_FILE_TIMER=1", "TORCHELASTIC_TIMER_FILE=" + fifo});
    EXPECT_THAT(ended(job), exits(0, "done"));
    EXPECT_TRUE(stranger.running());
    EXPECT_FALSE(fs::exists(fifo));
}

}  // namespace
}  // namespace regroup::testing
