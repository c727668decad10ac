// SPDX-License-Identifier: Apache-2.0
//
// Snapshots that the agents keep: what dies, and what the next workers load.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <memory>
#include <set>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <nlohmann/json.hpp>

#include "tests/e2e/cable.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

using Marks = std::map<std::uint32_t, Mark>;

class RunSnapshot : public EndToEnd {
   protected:
    [[nodiscard]] Program start_one(const Words& flags) const {
        return run(Words{"--standalone", "--max-restarts=5"} + flags +
                   Words{SNAPSHOT_PROBE_PROGRAM});
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(unsigned number, const std::string& nodes,
                                                      const std::string& endpoint,
                                                      const Words& flags = {}) const {
        return start_run(node(number, nodes, endpoint) +
                         Words{"--nproc-per-node=2", "--last-call=30", "--max-restarts=5"} + flags +
                         Words{SNAPSHOT_PROBE_PROGRAM});
    }
    /// The newest step that some rank knew to be kept, in a round with so many ranks.
    [[nodiscard]] std::uint64_t await_kept(std::size_t ranks, std::uint64_t round_min = 1) const {
        std::uint64_t kept = 0;
        for (const auto& [rank, mark] : await_marks("kept", ranks, round_min)) {
            kept = std::max<std::uint64_t>(kept, std::stoull(mark.at("step")));
        }
        return kept;
    }
    /// Ranks that load have the marks of no earlier program then.
    void forget_marks(const std::string& name) const {
        for (const auto& [round, all] : marks(name)) {
            for (const auto& [rank, mark] : all) {
                std::filesystem::remove(folder() + "/" + name + "." + std::to_string(round) + "." +
                                        std::to_string(rank));
            }
        }
    }
    static void kill_all(const std::vector<pid_t>& pids) {
        for (const pid_t pid : pids) {
            ::kill(pid, SIGKILL);
        }
    }
    static std::vector<pid_t> pids_of(const Marks& marks) {
        std::vector<pid_t> pids;
        for (const auto& [rank, mark] : marks) {
            pids.push_back(pid_of(mark));
        }
        return pids;
    }
    [[nodiscard]] std::string snapshots() const { return folder() + "/snapshots"; }
    /// The steps of the versions in a folder for snapshots that have the file.
    static std::vector<std::uint64_t> steps_in(const std::string& snapshots,
                                               const std::string& file) {
        std::vector<std::uint64_t> steps;
        std::error_code absent;
        for (const auto& version :
             std::filesystem::directory_iterator(snapshots + "/state", absent)) {
            const std::string name = version.path().filename();
            if (std::filesystem::exists(version.path() / file) ||
                std::filesystem::exists(version.path() / (file + ".safetensors"))) {
                steps.push_back(std::stoull(name.substr(name.rfind('-') + 1)));
            }
        }
        std::ranges::sort(steps);
        return steps;
    }
    /// Those that are complete. Each file has the length that the index says.
    static std::vector<std::uint64_t> steps_in(const std::string& snapshots) {
        std::error_code gone;  // Agents delete old versions.
        for (const auto& version :
             std::filesystem::directory_iterator(snapshots + "/state", gone)) {
            const auto index =
                nlohmann::json::parse(read_file(version.path() / "snapshot.json"), nullptr, false);
            for (const auto& part : index.is_object() ? index["parts"] : nlohmann::json()) {
                const auto file = version.path() / part["file"].get<std::string>();
                const auto bytes = std::filesystem::file_size(file, gone);
                EXPECT_TRUE(gone || bytes == part["bytes"]) << file;
            }
        }
        return steps_in(snapshots, "snapshot.json");
    }
    /// The program has said which step it wrote last, and the folder has it.
    void expect_written(const Program& program, std::uint64_t least) const {
        const std::vector<std::uint64_t> steps = steps_in(snapshots());
        ASSERT_THAT(steps, Not(IsEmpty())) << program.output();
        EXPECT_GE(steps.back(), least);
        EXPECT_THAT(program.output(), HasSubstr("step " + std::to_string(steps.back()) + " "));
    }
    /// Two nodes lose the second one, of which the first has the copies.
    void expect_repaired_without_second(Program& first, const Program& second) const {
        ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << first.output() << second.output();
        const std::uint64_t kept = await_kept(4);
        ASSERT_GT(kept, 0) << first.output() << second.output();
        kill_all(second.family());
        // Two ranks load what four have saved.
        const Marks left = await_marks("up", 2, 2);
        expect_loaded(left, 2, kept);
        ASSERT_GT(await_kept(2, 2), kept) << first.output();
        release("finish");
        EXPECT_EQ(first.wait(), 0) << first.output();
    }
    /// All ranks have loaded the same intact step, which is `least` or a later one.
    static void expect_loaded(const Marks& marks, std::size_t ranks, std::uint64_t least) {
        ASSERT_EQ(marks.size(), ranks);
        const std::string& loaded = marks.begin()->second.at("loaded");
        ASSERT_NE(loaded, "none");
        EXPECT_GE(std::stoull(loaded), least);
        for (const auto& [rank, mark] : marks) {
            EXPECT_EQ(mark.at("loaded"), loaded) << "rank " << rank;
            EXPECT_EQ(mark.at("intact"), "yes") << "rank " << rank;
        }
    }
};

TEST_F(RunSnapshot, WorkerThatDiesInTheMiddleOfASaveCostsAtMostOneStep) {
    Program job = start_one({"--nproc-per-node=3"});
    ASSERT_THAT(await_marks("up", 3), SizeIs(3)) << job.output();
    const std::uint64_t kept = await_kept(3);
    ASSERT_GT(kept, 0) << job.output();
    release("crash.1");
    const Marks again = await_marks("up", 3, 2);
    expect_loaded(again, 3, kept);
    ASSERT_GT(await_kept(3, 2), kept) << job.output();
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST_F(RunSnapshot, LossOfAllWorkersIsRepairedFromMemory) {
    Program job = start_one({"--nproc-per-node=3"});
    const Marks first = await_marks("up", 3);
    ASSERT_THAT(first, SizeIs(3)) << job.output();
    const std::uint64_t kept = await_kept(3);
    ASSERT_GT(kept, 0) << job.output();
    for (const auto& [rank, mark] : first) {
        ::kill(pid_of(mark), SIGKILL);
    }
    expect_loaded(await_marks("up", 3, 2), 3, kept);
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

TEST_F(RunSnapshot, WorkersThatAreLostWhileTheDaemonIsAwayGoOnFromMemory) {
    const Words flags{"--listen=127.0.0.1:" + std::to_string(unused_port()),
                      "--state=" + folder() + "/state"};
    auto daemon = std::make_unique<Rendezvous>(flags);
    const auto first = start_node(1, "2:2", daemon->endpoint());
    const auto second = start_node(2, "2:2", daemon->endpoint());
    const Marks before = await_marks("up", 4);
    ASSERT_THAT(before, SizeIs(4)) << first->output() << second->output();
    const std::uint64_t kept = await_kept(4);
    ASSERT_GT(kept, 0) << first->output() << second->output();
    daemon->program().signal(SIGKILL);
    daemon->program().wait();
    kill_all(pids_of(before));
    daemon = std::make_unique<Rendezvous>(flags);
    expect_loaded(await_marks("up", 4, 2), 4, kept);
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
}

TEST_F(RunSnapshot, LossOfANodeIsRepairedFromTheCopies) {
    Rendezvous rendezvous;
    const auto first = start_node(1, "1:2", rendezvous.endpoint());
    const auto second = start_node(2, "1:2", rendezvous.endpoint());
    expect_repaired_without_second(*first, *second);
}

/// Two hosts with a token: the agents know each other by TLS.
class RunSnapshotOverTls : public RunSnapshot {
   protected:
    void SetUp() override {
        if (const auto missing = cable_.lay()) {
            GTEST_SKIP() << *missing;
        }
        Program token({{regroup_program(), "token", "--generate", token_}, {}, folder()});
        ASSERT_EQ(token.wait(), 0) << token.output();
    }
    [[nodiscard]] std::unique_ptr<Program> start(std::size_t host, const Words& command) const {
        return std::make_unique<Program>(
            ProgramSpec{cable_.inside(host, host == 0 ? "node-a" : "node-b", command),
                        {"PROBE_DIR=" + folder()},
                        folder()});
    }
    [[nodiscard]] std::unique_ptr<Program> start_node(std::size_t host) const {
        return start(host,
                     {regroup_program(), "run", "--nnodes=1:2", "--rdzv-backend=c10d",
                      "--rdzv-endpoint=10.77.0.1:29400", "--rdzv-id=job", "--nproc-per-node=2",
                      "--last-call=30", "--max-restarts=5", token_, SNAPSHOT_PROBE_PROGRAM});
    }

    Cable cable_;
    const std::string token_ = "--token-file=" + folder() + "/token";
};

TEST_F(RunSnapshotOverTls, LossOfANodeIsRepairedFromTheCopies) {
    const auto daemon =
        start(0, {regroup_program(), "serve", "--listen=10.77.0.1:29400", "--state=none", token_});
    ASSERT_TRUE(daemon->prints("listening on")) << daemon->output();
    const auto first = start_node(0);
    const auto second = start_node(1);
    expect_repaired_without_second(*first, *second);
}

TEST_F(RunSnapshot, DrainedNodeWritesItsPartsAndTheOthersGoOn) {
    Rendezvous rendezvous;
    const Words flags{"--snapshot-dir=snapshots"};
    const auto first = start_node(1, "1:2", rendezvous.endpoint(), flags);
    const auto second = start_node(2, "1:2", rendezvous.endpoint(), flags);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << first->output() << second->output();
    const std::uint64_t kept = await_kept(4);
    ASSERT_GT(kept, 0) << first->output() << second->output();
    Program drain({{regroup_program(), "drain", "--endpoint=" + rendezvous.endpoint(), "127.0.0.3"},
                   {},
                   folder()});
    ASSERT_EQ(drain.wait(), 0) << drain.output();
    EXPECT_EQ(second->wait(), 75) << second->output();
    const std::vector<std::uint64_t> steps = steps_in(snapshots(), "part-00003-of-00004");
    ASSERT_THAT(steps, Not(IsEmpty())) << second->output();
    EXPECT_EQ(steps, steps_in(snapshots(), "part-00002-of-00004"));
    EXPECT_GE(steps.back(), kept);
    EXPECT_THAT(second->output(), HasSubstr("step " + std::to_string(steps.back()) + " "));
    expect_loaded(await_marks("up", 2, 2), 2, kept);
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
    expect_written(*first, kept);
}

TEST_F(RunSnapshot, NodesThatAreEndedTogetherWriteOneStep) {
    Rendezvous rendezvous;
    const Words flags{"--snapshot-dir=snapshots"};
    const auto first = start_node(1, "2:2", rendezvous.endpoint(), flags);
    const auto second = start_node(2, "2:2", rendezvous.endpoint(), flags);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << first->output() << second->output();
    const std::uint64_t kept = await_kept(4);
    ASSERT_GT(kept, 0) << first->output() << second->output();
    first->signal(SIGTERM);
    second->signal(SIGTERM);
    first->wait();
    second->wait();
    expect_written(*first, kept);
    expect_written(*second, kept);
}

TEST_F(RunSnapshot, JobThatIsEndedGoesOnFromTheFolderWithOtherRanks) {
    const Words flags{"--snapshot-dir=snapshots"};
    std::uint64_t kept = 0;
    {
        Program job = start_one(Words{"--nproc-per-node=3"} + flags);
        ASSERT_THAT(await_marks("up", 3), SizeIs(3)) << job.output();
        kept = await_kept(3);
        ASSERT_GT(kept, 0) << job.output();
        job.signal(SIGTERM);
        job.wait();
        expect_written(job, kept);
    }
    forget_marks("up");
    Program job = start_one(Words{"--nproc-per-node=2"} + flags);
    const Marks again = await_marks("up", 2);
    expect_loaded(again, 2, steps_in(snapshots()).back());
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

/// The descriptors of other processes tell which memory they hold: its device and inode.
using Memory = std::pair<dev_t, ino_t>;

std::set<Memory> memory_of(pid_t pid) {
    std::set<Memory> held;
    std::error_code gone;
    const std::string folder = "/proc/" + std::to_string(pid) + "/fd";
    for (std::filesystem::directory_iterator at(folder, gone), end; !gone && at != end;
         at.increment(gone)) {
        struct stat status{};
        const std::string name = std::filesystem::read_symlink(at->path(), gone).string();
        if (name.starts_with("/memfd:regroup-snapshot") &&
            ::stat(at->path().c_str(), &status) == 0) {
            held.emplace(status.st_dev, status.st_ino);
        }
        gone.clear();
    }
    return held;
}

bool is_held(const std::set<Memory>& memory) {
    for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
        const pid_t pid = std::atoi(entry.path().filename().c_str());
        for (const Memory& held : pid > 0 ? memory_of(pid) : std::set<Memory>()) {
            if (memory.contains(held)) {
                return true;
            }
        }
    }
    return false;
}

TEST_F(RunSnapshot, MemoryIsFreeOnceTheAgentIsKilled) {
    Program job = start_one({"--nproc-per-node=2"});
    const Marks workers = await_marks("up", 2);
    ASSERT_THAT(workers, SizeIs(2)) << job.output();
    ASSERT_GT(await_kept(2), 0) << job.output();
    const std::vector<pid_t> children = children_of(job.pid());
    ASSERT_THAT(children, SizeIs(1));
    const std::set<Memory> memory = memory_of(children.front());
    EXPECT_THAT(memory, SizeIs(2));  // A room for each worker.
    ::kill(children.front(), SIGKILL);
    EXPECT_TRUE(eventually([&] { return job.family().empty(); })) << job.output();
    EXPECT_FALSE(is_held(memory));
    EXPECT_THAT(marks("up"), SizeIs(1));
}

/// The job has its folder for snapshots on a small disk of its own.
class RunSnapshotFullDisk : public RunSnapshot {
   protected:
    void SetUp() override {
        Program trial({on_small_disk({"/bin/true"}), {}, folder()});
        if (::geteuid() != 0 || trial.wait() != 0) {
            GTEST_SKIP() << "a small disk needs root and a mount namespace: " << trial.output();
        }
    }
    /// A version has 12 MiB and the headers.
    [[nodiscard]] Words on_small_disk(const Words& command) const {
        return Words{"/usr/bin/unshare",
                     "-m",
                     "/bin/sh",
                     "-c",
                     "mkdir -p disk && mount -t tmpfs -o size=40m none disk && exec \"$@\"",
                     "sh"} +
               command;
    }
    /// The disk, as the program sees it.
    [[nodiscard]] std::string disk(const Program& job) const {
        return "/proc/" + std::to_string(job.pid()) + "/root" + folder() + "/disk";
    }
    static void fill(const std::string& disk) {
        std::ofstream filler(disk + "/filler", std::ios::app);
        for (const std::string bytes(4096, 'x'); filler.write(bytes.data(), 4096).flush();) {
        }
    }
};

TEST_F(RunSnapshotFullDisk, LeavesTheLastVersionAndTheTrainingGoesOn) {
    const Words command{regroup_program(),      "run",
                        "--standalone",         "--max-restarts=5",
                        "--nproc-per-node=2",   "--snapshot-dir=" + folder() + "/disk/snapshots",
                        "--snapshot-interval=0"};
    Program job({on_small_disk(command + Words{SNAPSHOT_PROBE_PROGRAM}),
                 {"PROBE_DIR=" + folder()},
                 folder()});
    const std::string snapshots = disk(job) + "/snapshots";
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << job.output();
    ASSERT_TRUE(eventually([&] { return !steps_in(snapshots).empty(); })) << job.output();
    // A part that could not be written is deleted, and leaves some place.
    ASSERT_TRUE(eventually([&] {
        fill(disk(job));
        return job.output().find("could not be written") != std::string::npos;
    })) << job.output();
    fill(disk(job));
    const std::vector<std::uint64_t> left = steps_in(snapshots);
    ASSERT_THAT(left, Not(IsEmpty())) << job.output();
    release("crash.1");
    const Marks again = await_marks("up", 2, 2);
    expect_loaded(again, 2, left.back());
    ASSERT_GT(await_kept(2, 2), left.back()) << job.output();
    EXPECT_EQ(steps_in(snapshots).back(), left.back());
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

}  // namespace
}  // namespace regroup::testing
