// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/collective_watch.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <limits>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/worker_link/collectives_writer.h"
#include "tests/support/collectives_file.h"
#include "tests/support/fresh_process.h"

namespace regroup::agent {
namespace {

using namespace std::chrono_literals;
using rendezvous::Hang;
using worker_link::CollectiveBackend;
using worker_link::CollectiveGroup;
using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::CollectivesPage;
using worker_link::ElementType;
using worker_link::kSignaturesKept;
using worker_link::time_slot;

constexpr CollectiveSignature kGradients{CollectiveKind::all_reduce, ElementType::float32, 8};
constexpr Duration kLookInterval = 500ms;

class CollectiveWatchTest : public ::testing::Test {
   protected:
    CollectiveWatchTest() {
        page->groups_used.store(8);
        group().id.store(7);
        group().size.store(2);
        group().backend.store(CollectiveBackend::nccl);
        group().knows_ends.store(1);
        group().state.store(CollectiveGroup::kInUse);
    }
    CollectiveGroup& group() { return page->groups[3]; }

    void enter(CollectiveSignature signature = kGradients) {
        const std::uint64_t number = group().entered.load() + 1;
        group().signatures[number % kSignaturesKept].store(signature.packed());
        group().entered_at[number % kSignaturesKept].store(now.time_since_epoch().count());
        group().entered.store(number);
    }
    void complete() {
        group().completed_at.store(now.time_since_epoch().count());
        group().completed.fetch_add(1);
    }
    /// The group has learned how long its collectives take.
    void learn() {
        for (int i = 0; i < 40; ++i) {
            enter();
            complete();
        }
    }
    std::optional<Hang> look() {
        const std::vector<WorkerGroups> workers{{0, 4, 100, look_at(*page, now)}};
        return watch.look(now, workers);
    }
    /// Looks at each interval.
    std::optional<Hang> look_for(Duration time) {
        std::optional<Hang> hang = look();
        for (const Instant end = now + time; now < end && !hang;) {
            now += kLookInterval;
            hang = look();
        }
        return hang;
    }

    std::unique_ptr<CollectivesPage> page = std::make_unique<CollectivesPage>();
    HangLimits limits{};
    CollectiveWatch watch{limits, kLookInterval};
    Instant now = Instant(1h);
};

TEST_F(CollectiveWatchTest, CollectiveThatTakesLongIsReported) {
    learn();
    enter();
    const Instant began = now;
    const std::optional<Hang> hang = look_for(20s);
    ASSERT_TRUE(hang);
    EXPECT_GT(now - began, 10s);
    EXPECT_LE(now - began, 11s);
    EXPECT_EQ(hang->rank, 4U);
    EXPECT_TRUE(hang->in_collective);
    EXPECT_TRUE(hang->only_told);
    EXPECT_EQ(hang->text,
              "rank 4 has been in all_reduce 41 of nccl group of 2 ranks for 10 s (limit 10 s)");
}

TEST_F(CollectiveWatchTest, WithoutEndsAGroupThatIsNoLongerUsedIsNotReported) {
    learn();
    group().knows_ends.store(0);
    CollectiveGroup& other = page->groups[5];
    other.id.store(8);
    other.size.store(2);
    other.state.store(CollectiveGroup::kInUse);
    for (int i = 0; i < 60; ++i) {
        other.entered_at[(other.entered.load() + 1) % kSignaturesKept].store(
            now.time_since_epoch().count());
        other.entered.fetch_add(1);
        EXPECT_FALSE(look_for(2s));
    }
    EXPECT_TRUE(look_for(12s));
}

TEST_F(CollectiveWatchTest, FirstCollectivesMayTakeLonger) {
    enter();
    EXPECT_FALSE(look_for(59s));
    EXPECT_TRUE(look_for(3s));
}

TEST_F(CollectiveWatchTest, TimeBetweenCollectivesIsNotReported) {
    enter();
    complete();
    EXPECT_FALSE(look_for(1h));
}

TEST_F(CollectiveWatchTest, LimitFollowsTheLongestTimeOfSuchCollectives) {
    learn();
    group().longest[time_slot(kGradients.packed())].store(Duration(20s).count());
    enter();
    EXPECT_FALSE(look_for(99s));
    EXPECT_TRUE(look_for(3s));
}

TEST_F(CollectiveWatchTest, OtherCollectivesHaveTheirOwnLimit) {
    learn();
    constexpr CollectiveSignature kBarrier{CollectiveKind::barrier, ElementType::unknown, 0};
    ASSERT_NE(time_slot(kBarrier.packed()), time_slot(kGradients.packed()));
    group().longest[time_slot(kBarrier.packed())].store(Duration(300s).count());
    enter();
    EXPECT_TRUE(look_for(12s));
}

TEST_F(CollectiveWatchTest, TimeInWhichTheAgentDidNotRunDoesNotCount) {
    learn();
    enter();
    EXPECT_FALSE(look_for(5s));
    now += 60s;  // It was stopped, and the workers perhaps, too.
    EXPECT_FALSE(look());
    EXPECT_FALSE(look_for(4s));
    EXPECT_TRUE(look_for(3s));
}

TEST_F(CollectiveWatchTest, EachCollectiveHasItsOwnTime) {
    for (int i = 0; i < 100; ++i) {
        enter();
        EXPECT_FALSE(look_for(3s));
        complete();
    }
}

TEST_F(CollectiveWatchTest, TheCulpritMayBeEndedAfterTheTimeout) {
    limits.most = 30s;
    limits.floor = 10s;
    watch = CollectiveWatch(limits, kLookInterval);
    learn();
    enter();
    EXPECT_TRUE(look_for(12s)->only_told);
    now += kLookInterval;
    std::optional<Hang> hang = look();
    for (int i = 0; i < 60 && hang && hang->only_told; ++i) {
        now += kLookInterval;
        hang = look();
    }
    ASSERT_TRUE(hang);
    EXPECT_FALSE(hang->only_told);
    EXPECT_GT(hang->stood, 30s);
}

/// Four ranks train for a day, each in steps that take between a tenth of `most` and `most`, with
/// an all_reduce at the end. Returns the hangs that are found.
int hangs_in_a_day(Duration most, std::uint32_t seed) {
    constexpr std::uint32_t kRanks = 4;
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> part(0.1, 1);
    std::vector<std::unique_ptr<CollectivesPage>> pages;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        CollectiveGroup& group = pages.emplace_back(std::make_unique<CollectivesPage>())->groups[0];
        pages.back()->groups_used.store(1);
        group.id.store(7);
        group.size.store(kRanks);
        group.knows_starts.store(1);
        group.knows_ends.store(1);
        group.state.store(CollectiveGroup::kInUse);
    }
    CollectiveWatch watch(HangLimits{}, kLookInterval);
    Instant now(1h);
    const Instant end = now + 24h;
    std::array<Instant, kRanks> enters{};
    const auto plan = [&] {
        for (Instant& at : enters) {
            at = now + Duration(static_cast<Duration::rep>(part(random) *
                                                           static_cast<double>(most.count())));
        }
    };
    plan();
    int hangs = 0;
    for (std::uint64_t step = 1; now < end; now += kLookInterval) {
        bool all_entered = true;
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            CollectiveGroup& group = pages[rank]->groups[0];
            if (enters[rank] <= now && group.entered.load() < step) {
                group.signatures[step % kSignaturesKept].store(kGradients.packed());
                group.entered_at[step % kSignaturesKept].store(now.time_since_epoch().count());
                group.entered.store(step);
                group.started.store(step);
            }
            all_entered = all_entered && group.entered.load() == step;
        }
        if (all_entered) {
            for (const auto& page : pages) {
                CollectiveGroup& group = page->groups[0];
                const std::int64_t spent = now.time_since_epoch().count() -
                                           group.entered_at[step % kSignaturesKept].load();
                std::atomic<std::int64_t>& longest = group.longest[time_slot(kGradients.packed())];
                longest.store(std::max(longest.load(), spent));
                group.completed_at.store(now.time_since_epoch().count());
                group.completed.store(step);
            }
            ++step;
            plan();
        }
        std::vector<WorkerGroups> workers;
        for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
            workers.push_back({rank, rank, 100 + rank, look_at(*pages[rank], now)});
        }
        hangs += watch.look(now, workers) ? 1 : 0;
    }
    return hangs;
}

/// Looks at a page for a second while a thread writes collectives as fast as it can, each of as
/// many elements as its number says. True if no look tells other arguments, and some tell any.
bool looks_are_true(testing::CollectivesFile& file) {
    ::setenv(worker_link::kCollectivesVariable, file.path().c_str(), 1);
    std::atomic<bool> is_over = false;
    std::thread writer([&] {
        worker_link::GroupWriter group({.backend = CollectiveBackend::nccl, .size = 2});
        while (!is_over) {
            const std::uint64_t number = file.group(0).entered.load() + 1;
            group.entered({CollectiveKind::all_reduce, ElementType::float32, number});
        }
    });
    bool all_true = true;
    std::size_t told = 0;
    for (const auto end = std::chrono::steady_clock::now() + 1s;
         std::chrono::steady_clock::now() < end;) {
        for (const GroupLook& look : look_at(file.page(), Instant(1h))) {
            for (const rendezvous::CalledCollective& called : look.position.called) {
                ++told;
                all_true =
                    all_true && called.arguments == std::to_string(called.number) + " float32";
            }
        }
    }
    is_over = true;
    writer.join();
    return all_true && told > 0;
}

TEST(CollectiveWatchRace, LookBesideAWriterTellsOfEachCollectiveItsOwnArguments) {
    testing::CollectivesFile file;
    EXPECT_TRUE(testing::succeeds_in_fresh_process([&] { return looks_are_true(file); }));
}

TEST(CollectiveWatchDay, StepsThatVaryByAFactorOfTenAreNoHang) {
    for (const Duration most : {Duration(2s), Duration(5s), Duration(20s), Duration(60s)}) {
        EXPECT_EQ(hangs_in_a_day(most, 4711), 0) << to_seconds(most);
    }
}

TEST_F(CollectiveWatchTest, PositionTellsTheCollectiveAndTheLastOnes) {
    enter();
    complete();
    enter();
    enter();
    now += 2s;
    const rendezvous::GroupPosition position = look_at(*page, now).at(0).position;
    EXPECT_EQ(position.entered, 3U);
    EXPECT_EQ(position.completed, 1U);
    EXPECT_EQ(position.stood, 2s);
    const std::vector<rendezvous::CalledCollective> called{{2, "all_reduce", "8 float32"},
                                                           {3, "all_reduce", "8 float32"}};
    EXPECT_EQ(position.called, called);
}

TEST_F(CollectiveWatchTest, WithoutEndsPositionTellsAllThatAreKept) {
    group().knows_ends.store(0);
    for (int i = 0; i < 20; ++i) {
        enter();
    }
    const rendezvous::GroupPosition position = look_at(*page, now).at(0).position;
    std::vector<std::uint64_t> numbers;
    for (const auto& called : position.called) {
        numbers.push_back(called.number);
    }
    EXPECT_EQ(numbers,
              (std::vector<std::uint64_t>{20, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}));
}

TEST_F(CollectiveWatchTest, PositionTellsTheCollectiveOfAProgramThatIsFarAhead) {
    enter();
    complete();
    enter();
    for (int i = 0; i < 200; ++i) {
        enter({CollectiveKind::broadcast, ElementType::int64, 1});
    }
    now += 2s;
    const rendezvous::GroupPosition position = look_at(*page, now).at(0).position;
    EXPECT_EQ(position.called.front(),
              (rendezvous::CalledCollective{2, "all_reduce", "8 float32"}));
    EXPECT_EQ(position.called.back().number, 202U);
}

TEST_F(CollectiveWatchTest, EndsAreUnknownIfTheWriterDoesNotLookForThem) {
    group().looked_at.store(now.time_since_epoch().count());
    enter();
    enter();
    now += 1s;
    EXPECT_TRUE(look_at(*page, now).at(0).position.knows_ends);
    now += 2s;  // Its interpreter is locked, perhaps.
    EXPECT_FALSE(look_at(*page, now).at(0).position.knows_ends);
    EXPECT_EQ(look_at(*page, now).at(0).position.stood, 3s);
    group().looked_at.store(now.time_since_epoch().count());
    EXPECT_TRUE(look_at(*page, now).at(0).position.knows_ends);
}

TEST_F(CollectiveWatchTest, APageMayHoldAnything) {
    page->groups_used.store(std::numeric_limits<std::uint32_t>::max());
    unsigned char* const bytes = reinterpret_cast<unsigned char*>(&page->groups);
    std::uint32_t state = 1;
    for (int round = 0; round < 200; ++round) {
        for (std::size_t i = 0; i < sizeof page->groups; ++i) {
            state = state * 1664525U + 1013904223U;
            bytes[i] = static_cast<unsigned char>(state >> 24U);
        }
        for (CollectiveGroup& each : page->groups) {
            each.state.store(CollectiveGroup::kInUse);
        }
        for (const GroupLook& seen : look_at(*page, now)) {
            EXPECT_GE(seen.position.stood, 0s);
            EXPECT_GE(seen.position.entered, seen.position.completed);
            EXPECT_LE(seen.position.called.size(), 16U);
        }
        static_cast<void>(look());
    }
}

}  // namespace
}  // namespace regroup::agent
