// SPDX-License-Identifier: Apache-2.0
//
// stop_requested in processes without a launcher, and a real SIGTERM.
#include <regroup/regroup.h>

#include <array>
#include <atomic>
#include <csignal>
#include <cstdint>
#include <random>
#include <span>
#include <sys/mman.h>
#include <sys/wait.h>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/base/clock.h"
#include "tests/conformance/hand_started_ranks.h"

#if defined(__SANITIZE_THREAD__)
#define REGROUP_THREAD_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define REGROUP_THREAD_SANITIZED 1
#endif
#endif

namespace regroup::testing {
namespace {

constexpr std::uint32_t kRanks = 3;

/// The ranks' reports to the test, in memory that all share.
struct Board {
    std::array<std::atomic<std::uint64_t>, kRanks> begun{};
    std::array<std::atomic<std::uint64_t>, kRanks> stopped{};

    void clear() {
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            begun.at(rank) = stopped.at(rank) = 0;
        }
    }
};

class StopProcesses : public ::testing::Test {
   public:
    ~StopProcesses() override { ::munmap(board_, sizeof(Board)); }

   protected:
    StopProcesses()
        : board_(static_cast<Board*>(::mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                                            MAP_SHARED | MAP_ANONYMOUS, -1, 0))) {}

    [[nodiscard]] Board& board() const { return *board_; }
    [[nodiscard]] bool await_step(std::uint32_t rank, std::uint64_t step) const {
        const Instant deadline = after(SteadyClock().now(), kPatience);
        while (board_->begun[rank] < step && SteadyClock().now() < deadline) {
            std::this_thread::yield();
        }
        return board_->begun[rank] >= step;
    }

   private:
    Board* const board_;
};

/// A rank that trains with the others until all stop.
bool train(const Context& context, Board& board, const auto& requested) {
    const auto group = join(context);
    for (std::uint64_t step = 1;; ++step) {
        if (requested(step)) {
            board.stopped[context.rank] = step;
            return true;
        }
        board.begun[context.rank] = step;
        std::vector<std::int64_t> gradient{1};
        group->all_reduce(std::span(gradient), ReduceOp::sum).wait();
    }
}

void expect_same_step(Board& board, const std::vector<pid_t>& pids) {
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        EXPECT_EQ(board.stopped[rank], board.stopped[0]) << "rank " << rank;
        EXPECT_EQ(board.begun[rank] + 1, board.stopped[rank]) << "rank " << rank;
    }
}

TEST_F(StopProcesses, SigtermToOneRankStopsAllAtTheSameStep) {
    std::minstd_rand random(29);
    for (unsigned trial = 0; trial < 6; ++trial) {
        board().clear();
        const std::vector<pid_t> pids = start_ranks(kRanks, [&] {
            const Context context = Context::from_environment();
            return train(context, board(),
                         [&](std::uint64_t step) { return stop_requested(step, context); });
        });
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            ASSERT_TRUE(await_step(rank, 2));
        }
        ASSERT_TRUE(await_step(0, 2 + random() % 2000));
        ::kill(pids[random() % kRanks], SIGTERM);
        expect_same_step(board(), pids);
    }
}

TEST_F(StopProcesses, SigtermToAllRanksStopsThemAtTheSameStep) {
    const std::vector<pid_t> pids = start_ranks(kRanks, [&] {
        const Context context = Context::from_environment();
        return train(context, board(),
                     [&](std::uint64_t step) { return stop_requested(step, context); });
    });
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        ASSERT_TRUE(await_step(rank, 2));
    }
    for (const pid_t pid : pids) {
        ::kill(pid, SIGTERM);
    }
    expect_same_step(board(), pids);
}

// PyTorch in rank 0 serves the store, or another Context does.
TEST_F(StopProcesses, ProgramMayServeTheStoreItself) {
    const std::vector<pid_t> pids = start_ranks(kRanks, [&] {
        const Context context = Context::from_environment();
        static_cast<void>(context.store());
        return train(context, board(), [](std::uint64_t step) { return stop_requested(step); });
    });
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        ASSERT_TRUE(await_step(rank, 2));
    }
    ::kill(pids[1], SIGTERM);
    expect_same_step(board(), pids);
}

TEST_F(StopProcesses, ForkedChildIsToldNothingAndEndsBySigterm) {
#ifdef REGROUP_THREAD_SANITIZED
    GTEST_SKIP() << "a child of several threads runs no signal handler under this sanitizer";
#endif
    const std::vector<pid_t> pids = start_ranks(1, [&] {
        const bool before = stop_requested(1);
        std::fflush(nullptr);
        const pid_t child = ::fork();
        if (child == 0) {
            board().begun[0] = stop_requested(2) ? 2 : 1;
            for (;;) {
                ::pause();
            }
        }
        const Instant deadline = after(SteadyClock().now(), kPatience);
        while (board().begun[0] == 0 && SteadyClock().now() < deadline) {
            std::this_thread::yield();
        }
        ::kill(child, SIGTERM);
        int status = 0;
        ::waitpid(child, &status, 0);
        return !before && board().begun[0] == 1 && WIFSIGNALED(status) &&
               WTERMSIG(status) == SIGTERM && !stop_requested(2);
    });
    EXPECT_EQ(status_of(pids.at(0)), 0);
}

}  // namespace
}  // namespace regroup::testing
