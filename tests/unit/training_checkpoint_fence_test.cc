// SPDX-License-Identifier: Apache-2.0
#include <regroup/checkpoint.h>
#include <regroup/error.h>

#include <cstdlib>
#include <filesystem>
#include <optional>
#include <string>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/fake_agent.h"
#include "tests/support/temporary_directory.h"
#include "worker_sdk/src/checkpoint/fence.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup {
namespace {

namespace fs = std::filesystem;

class CheckpointFence : public ::testing::Test {
   public:
    ~CheckpointFence() override { link::enter_history(0); }

   protected:
    /// As a worker that takes part in a training which began then.
    std::optional<Error> save(std::uint64_t began, std::uint64_t round, std::int64_t value) {
        link::enter_history(began);
        Checkpoint checkpoint;
        checkpoint.set_integer("value", value);
        return error_of([&] { checkpoint.save(path(), {.round = round}); });
    }
    [[nodiscard]] std::int64_t saved() const { return Checkpoint::load(path()).integer("value"); }
    [[nodiscard]] fs::path path() const { return directory_ / "state"; }

   private:
    testing::TemporaryDirectory directory_;
};

TEST_F(CheckpointFence, LaterRoundOverwritesAnEarlierOneAndNotTheReverse) {
    EXPECT_FALSE(save(100, 3, 1));
    EXPECT_FALSE(save(100, 3, 2));
    EXPECT_FALSE(save(100, 4, 3));
    const auto error = save(100, 3, 4);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::fenced);
    EXPECT_NE(std::string(error->what()).find("round 4 has saved it since"), std::string::npos)
        << error->what();
    EXPECT_EQ(saved(), 3);
}

TEST_F(CheckpointFence, PipesAtTheNamesOfItsFilesBlockNothing) {
    const std::string pipe = path().string() + ".1-0.partial";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
    EXPECT_FALSE(save(100, 3, 1));
    ASSERT_EQ(::mkfifo((path().string() + "2.lock").c_str(), 0600), 0);
    EXPECT_THAT(error_of([&] { Checkpoint().save(path().string() + "2", {.round = 3}); }),
                is_error("it is no regular file"));
    ASSERT_EQ(::mkfifo((path().string() + "3").c_str(), 0600), 0);
    EXPECT_TRUE(error_of([&] { static_cast<void>(Checkpoint::load(path().string() + "3")); }));
}

TEST_F(CheckpointFence, LaterTrainingOverwritesInAnyRound) {
    EXPECT_FALSE(save(100, 9, 1));
    EXPECT_FALSE(save(200, 1, 2));
    EXPECT_EQ(save(100, 10, 3)->code(), Errc::fenced);
    EXPECT_EQ(saved(), 2);
}

TEST_F(CheckpointFence, TrainingThatResumesFromACheckpointMayOverwriteIt) {
    constexpr std::uint64_t kFarFuture = std::uint64_t{1} << 62U;
    EXPECT_FALSE(save(kFarFuture, 9, 1));
    EXPECT_EQ(saved(), 1);
    EXPECT_GT(link::new_history(), kFarFuture);
    EXPECT_FALSE(save(link::new_history(), 1, 2));
}

TEST_F(CheckpointFence, LeavingRankMaySaveAfterItsRoundUnlessALaterOneHas) {
    testing::FakeAgent agent;
    ASSERT_TRUE(link::attach_process(agent.socket(), "w"));
    worker_link::WorkerPage& page = link::process_link()->page();
    page.ended_round.store(3);
    const auto error = save(100, 3, 1);
    ASSERT_TRUE(error);
    EXPECT_EQ(error->code(), Errc::fenced);
    page.leaving.store(worker_link::Leaving::at_boundary);
    EXPECT_FALSE(save(100, 3, 2));
    EXPECT_FALSE(save(100, 4, 3));
    EXPECT_TRUE(save(100, 3, 4));
    EXPECT_EQ(saved(), 3);
    // The link lasts as long as the process, which other tests share.
    page.ended_round.store(0);
    page.leaving.store(worker_link::Leaving::no);
}

TEST_F(CheckpointFence, SaveWithoutARoundIsNotFencedAndKeepsTheFormat) {
    EXPECT_FALSE(save(100, 9, 1));
    EXPECT_FALSE(save(100, 0, 2));
    EXPECT_EQ(saved(), 2);
    EXPECT_EQ(checkpointing::author_of(path()).round, 0U);
    EXPECT_FALSE(save(100, 1, 3)) << "it does not say who has saved it";
    EXPECT_EQ(checkpointing::author_of(path()).round, 1U);
}

TEST_F(CheckpointFence, FileThatIsNoCheckpointHasNoAuthor) {
    EXPECT_EQ(checkpointing::author_of(path()).began, 0U);
}

}  // namespace
}  // namespace regroup
