// SPDX-License-Identifier: Apache-2.0
//
// Ranks that agree on the step at which they stop: as threads, at any pace, over a real store.
#include "worker_sdk/src/stop/stop_agreement.h"

#include <regroup/error.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/errors.h"
#include "tests/support/patience.h"
#include "tests/support/program.h"

namespace regroup::stopping {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using testing::kPatience;

/// The ranks of a job that serves its store itself.
class Job {
   public:
    explicit Job(std::uint32_t ranks) {
        Context first;
        first.world_size = ranks;
        first.master_addr = "127.0.0.1";
        first.master_port = testing::unused_port();
        for (std::uint32_t rank = 0; rank < ranks; ++rank) {
            Context& context = contexts_.emplace_back();
            context.rank = rank;
            context.world_size = ranks;
            context.master_addr = first.master_addr;
            context.master_port = first.master_port;
            context.store_timeout = kPatience;
            static_cast<void>(context.store());
        }
        ranks_.resize(ranks);
    }

    [[nodiscard]] std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
    [[nodiscard]] const Context& context(std::uint32_t rank) const { return contexts_.at(rank); }
    void begin(std::uint32_t rank, Duration limit = kPatience) {
        ranks_.at(rank) = std::make_unique<StopAgreement>(
            contexts_.at(rank),
            StopAgreement::Hooks{.is_wanted = [this, rank] { return wanted_ == rank; },
                                 .end_by_signal =
                                     [this](const std::string& why) {
                                         const std::lock_guard lock(mutex_);
                                         ended_ = why;
                                         has_ended_.store(true);
                                     },
                                 .on_stop = [this] { ++stops_; }},
            limit);
    }
    void begin_all() {
        for (std::uint32_t rank = 0; rank < size(); ++rank) {
            begin(rank);
        }
    }
    [[nodiscard]] StopAgreement& at(std::uint32_t rank) const { return *ranks_.at(rank); }
    void end(std::uint32_t rank) { ranks_.at(rank).reset(); }

    /// As the handler of SIGTERM does.
    void signal(std::uint32_t rank) const { add_to(at(rank).signal_bell()); }
    void want_by_agent(std::uint32_t rank) {
        wanted_ = rank;
        add_to(at(rank).bell());
    }
    /// Waits until all ranks have answered.
    void await_decision() const { contexts_.back().store()->wait({"stop/0.0/1/step"}, kPatience); }
    /// Why the signal ends a rank after all.
    [[nodiscard]] std::string await_end_by_signal() {
        const Instant deadline = after(SteadyClock().now(), kPatience);
        while (!has_ended_ && SteadyClock().now() < deadline) {
            std::this_thread::yield();
        }
        const std::lock_guard lock(mutex_);
        return ended_;
    }
    [[nodiscard]] std::uint32_t stops() const { return stops_; }

   private:
    static void add_to(int bell) {
        const std::uint64_t one = 1;
        EXPECT_EQ(::write(bell, &one, sizeof one), static_cast<ssize_t>(sizeof one));
    }

    std::vector<Context> contexts_;
    std::atomic<std::uint32_t> wanted_ = 1000;
    std::atomic<std::uint32_t> stops_ = 0;
    std::atomic<bool> has_ended_ = false;
    std::mutex mutex_;
    std::string ended_;  // Guarded by mutex_.
    std::vector<std::unique_ptr<StopAgreement>> ranks_;
};

/// The first step for which a rank gets the answer true; at most `steps`.
std::uint64_t run(StopAgreement& rank, std::uint64_t first, std::uint64_t steps,
                  std::minstd_rand random) {
    for (std::uint64_t step = first; step < steps; ++step) {
        if (rank.requested(step)) {
            return step;
        }
        // Mostly: a rank that has fallen far behind takes its steps as fast as the others took them.
        if (random() % 64 != 0) {
            std::this_thread::yield();
        }
    }
    return steps;
}

constexpr std::uint64_t kNoEnd = std::uint64_t{1} << 60U;

/// Calls `body` with each rank, each on a thread of its own.
void each_rank(const Job& job, const auto& body) {
    std::vector<std::thread> threads;
    for (std::uint32_t rank = 0; rank < job.size(); ++rank) {
        threads.emplace_back([&, rank] { body(rank); });
    }
    for (std::thread& thread : threads) {
        thread.join();
    }
}

TEST(StopAgreement, RandomRequestsStopAllRanksAtTheSameStep) {
    constexpr unsigned kRequests = 240;
    std::minstd_rand random(20261129);
    for (unsigned request = 0; request < kRequests; ++request) {
        Job job(1 + random() % 4);
        job.begin_all();
        const auto first = static_cast<std::uint32_t>(random() % job.size());
        const auto second = static_cast<std::uint32_t>(random() % job.size());
        const bool by_agent = random() % 2 == 0;
        const std::uint64_t moment = random() % 3000;
        const auto seed = random();
        std::vector<std::uint64_t> stopped(job.size());
        std::thread asks([&] {
            for (std::uint64_t i = 0; i < moment; ++i) {
                std::this_thread::yield();
            }
            job.signal(first);
            if (by_agent) {
                job.want_by_agent(second);
            } else {
                job.signal(second);
            }
        });
        each_rank(job, [&](std::uint32_t rank) {
            stopped[rank] = run(job.at(rank), 0, kNoEnd, std::minstd_rand(seed + rank));
            EXPECT_TRUE(job.at(rank).requested(stopped[rank]));  // And for each later step.
            EXPECT_TRUE(job.at(rank).requested(stopped[rank] + 7));
        });
        asks.join();
        for (std::uint32_t rank = 1; rank < job.size(); ++rank) {
            ASSERT_EQ(stopped[rank], stopped[0]) << "request " << request << ", rank " << rank;
        }
        ASSERT_LT(stopped[0], kNoEnd);
        ASSERT_GE(job.stops(), job.size());
    }
}

TEST(StopAgreement, RanksBehindTakeTheStepsThatTheFurthestHasBegun) {
    Job job(3);
    job.begin_all();
    EXPECT_FALSE(job.at(0).requested(4));
    EXPECT_FALSE(job.at(1).requested(9));
    EXPECT_FALSE(job.at(2).requested(2));
    job.signal(2);
    job.await_decision();
    each_rank(job, [&](std::uint32_t rank) {
        const std::vector<std::uint64_t> begun{4, 9, 2};
        EXPECT_EQ(run(job.at(rank), begun[rank] + 1, kNoEnd, std::minstd_rand(1)), 10);
    });
}

TEST(StopAgreement, RankInALongStepHoldsUpNoOther) {
    Job job(2);
    job.begin_all();
    EXPECT_FALSE(job.at(0).requested(0));
    EXPECT_FALSE(job.at(1).requested(3));
    job.signal(1);
    job.await_decision();
    EXPECT_TRUE(job.at(1).requested(4));  // Rank 0 calls nothing meanwhile.
    EXPECT_FALSE(job.at(0).requested(1));
    EXPECT_TRUE(job.at(0).requested(4));
}

TEST(StopAgreement, RankThatHasEndedBeginsNoMoreSteps) {
    Job job(3);
    job.begin_all();
    EXPECT_EQ(run(job.at(1), 0, 8, std::minstd_rand(1)), 8);
    job.end(1);
    EXPECT_FALSE(job.at(2).requested(2));
    EXPECT_FALSE(job.at(0).requested(1));
    job.signal(0);
    job.await_decision();
    EXPECT_FALSE(job.at(0).requested(7));
    EXPECT_TRUE(job.at(0).requested(8));
    EXPECT_TRUE(job.at(2).requested(8));
}

TEST(StopAgreement, RankThatEndsWhileOthersAgreeHoldsUpNoOther) {
    for (unsigned trial = 0; trial < 30; ++trial) {
        Job job(2);
        job.begin_all();
        EXPECT_FALSE(job.at(1).requested(5));
        EXPECT_FALSE(job.at(0).requested(0));
        std::thread ends([&] { job.end(1); });
        job.signal(0);
        job.await_decision();
        EXPECT_EQ(run(job.at(0), 1, kNoEnd, std::minstd_rand(trial)), 6);
        ends.join();
    }
}

TEST(StopAgreement, SilentRanksAreNamedAndTheSignalTakesEffect) {
    constexpr Duration kShort = std::chrono::milliseconds(200);
    Job job(4);
    job.begin(0, kShort);
    job.begin(2, kShort);
    EXPECT_FALSE(job.at(0).requested(0));
    EXPECT_FALSE(job.at(2).requested(0));
    job.signal(2);
    const std::string why = job.await_end_by_signal();
    EXPECT_THAT(why, AllOf(HasSubstr("rank 2 got SIGTERM"), HasSubstr("ranks 1, 3 have not"),
                           HasSubstr("call it on all ranks in each step")));
    EXPECT_THAT(error_of([&] { static_cast<void>(job.at(0).requested(1)); }),
                is_error(Errc::deadline_exceeded, "ranks 1, 3 have not"));
    EXPECT_EQ(job.stops(), 0);
}

TEST(StopAgreement, RankWithoutAStoreEndsByTheSignal) {
    Job job(2);
    job.begin_all();
    EXPECT_FALSE(job.at(1).requested(0));
    job.context(1).interrupt("the round is over");
    job.signal(1);
    EXPECT_THAT(job.await_end_by_signal(), HasSubstr("the round is over"));
    job.end(1);
}

TEST(StopAgreement, EndOfTheRoundWakesRanksThatWait) {
    Job job(2);
    job.begin(0);
    EXPECT_FALSE(job.at(0).requested(0));
    job.want_by_agent(0);
    std::thread ends([&] {
        const Instant deadline = after(SteadyClock().now(), kPatience);
        while (!job.context(1).store()->check({"stop/0.0/1/asked"}) &&
               SteadyClock().now() < deadline) {
            std::this_thread::yield();
        }
        job.context(0).interrupt("round 3 is over");
    });
    std::uint64_t step = 0;
    const auto until_refused = [&] {
        while (!job.at(0).requested(++step)) {
        }
    };
    EXPECT_THAT(error_of(until_refused), is_error(Errc::fenced, "round 3 is over"));
    ends.join();
    job.end(0);
}

TEST(StopAgreement, StepsThatBecomeSmallerAreRefused) {
    Job job(1);
    job.begin_all();
    EXPECT_FALSE(job.at(0).requested(5));
    EXPECT_FALSE(job.at(0).requested(5));
    EXPECT_THAT(
        error_of([&] { static_cast<void>(job.at(0).requested(4)); }),
        is_error(Errc::invalid_argument, "step 4 comes after step 5", "count over all epochs"));
}

}  // namespace
}  // namespace regroup::stopping
