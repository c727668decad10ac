// SPDX-License-Identifier: Apache-2.0
//
// Snapshots that the agents keep: what dies, and what the next workers load.
#include <algorithm>
#include <csignal>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

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

TEST_F(RunSnapshot, LossOfANodeIsRepairedFromTheCopies) {
    Rendezvous rendezvous;
    const auto first = start_node(1, "1:2", rendezvous.endpoint());
    const auto second = start_node(2, "1:2", rendezvous.endpoint());
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << first->output() << second->output();
    const std::uint64_t kept = await_kept(4);
    ASSERT_GT(kept, 0) << first->output() << second->output();
    for (const pid_t pid : second->family()) {
        ::kill(pid, SIGKILL);
    }
    // Two ranks load what four have saved.
    const Marks left = await_marks("up", 2, 2);
    expect_loaded(left, 2, kept);
    ASSERT_GT(await_kept(2, 2), kept) << first->output();
    release("finish");
    EXPECT_EQ(first->wait(), 0) << first->output();
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
    }
    for (std::uint32_t rank = 0; rank < 3; ++rank) {  // Marks of the first job.
        std::filesystem::remove(folder() + "/up.1." + std::to_string(rank));
    }
    Program job = start_one(Words{"--nproc-per-node=2"} + flags);
    const Marks again = await_marks("up", 2);
    expect_loaded(again, 2, kept);
    release("finish");
    EXPECT_EQ(job.wait(), 0) << job.output();
}

}  // namespace
}  // namespace regroup::testing
