// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/straggler_detector.h"

#include <array>
#include <chrono>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace regroup::rendezvous {
namespace {

using std::chrono::microseconds;

constexpr int kWindowSteps = 10;

/// Windows of steps of about 10 ms; `slow` takes `factor` times as long. The number of steps until
/// it is named; -1 if it is not. Naming another rank fails the test.
int steps_until_named(std::uint32_t world, std::uint32_t slow, double factor, double noise,
                      int windows, unsigned seed) {
    std::mt19937 random(seed);
    std::uniform_real_distribution<double> spread(-noise, noise);
    StragglerDetector detector(world, 0.12);
    for (int window = 1; window <= windows; ++window) {
        std::vector<Duration> work(world);
        for (std::uint32_t rank = 0; rank < world; ++rank) {
            for (int step = 0; step < kWindowSteps; ++step) {
                const double time = 10'000 * (1 + spread(random)) * (rank == slow ? factor : 1);
                work[rank] += microseconds(static_cast<int>(time));
            }
        }
        for (const SlowRank& found : detector.observe(work)) {
            EXPECT_EQ(found.rank, slow);
            EXPECT_NEAR(found.excess, factor - 1, 0.1);
            return window * kWindowSteps;
        }
    }
    return -1;
}

TEST(StragglerDetector, RankThatIsAFifthSlowerIsNamedWithinFiftySteps) {
    for (const std::uint32_t world : {2U, 3U, 4U, 16U}) {
        for (unsigned seed = 0; seed < 50; ++seed) {
            const int steps = steps_until_named(world, world - 1, 1.2, 0.1, 5, seed);
            EXPECT_GT(steps, 0) << "world " << world << ", seed " << seed;
            EXPECT_LE(steps, 50);
        }
    }
}

TEST(StragglerDetector, NoiseNamesNoRank) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        EXPECT_EQ(steps_until_named(8, 8, 1.0, 0.2, 100, seed), -1) << "seed " << seed;
    }
}

/// Short steps on a busy machine, which sometimes interrupts a rank for some milliseconds.
class BusyMachine {
   public:
    explicit BusyMachine(unsigned seed) : random_(seed) {}
    [[nodiscard]] Duration window(double factor = 1) {
        std::uniform_real_distribution<double> spread(0.9, 1.1);
        double time = 20'000 * factor * spread(random_);  // Ten steps of 2 ms.
        while (interrupted_(random_)) {
            time += interruption_(random_);
        }
        return microseconds(static_cast<int>(time));
    }

   private:
    std::mt19937 random_;
    std::bernoulli_distribution interrupted_{0.3};
    std::uniform_real_distribution<double> interruption_{1'000, 12'000};
};

TEST(StragglerDetector, InterruptionsOfShortStepsNameNoRank) {
    int named = 0;
    for (unsigned seed = 0; seed < 200; ++seed) {
        BusyMachine machine(seed);
        StragglerDetector detector(4, 0.12);
        for (int window = 0; window < 100; ++window) {
            std::vector<Duration> work(4);
            for (Duration& time : work) {
                time = machine.window();
            }
            named += static_cast<int>(detector.observe(work).size());
        }
    }
    EXPECT_LE(named, 20) << "in 20000 windows of 4 ranks";
}

TEST(StragglerDetector, InterruptionsDelayTheNameOfASlowRankAndNameNoOther) {
    for (unsigned seed = 0; seed < 50; ++seed) {
        BusyMachine machine(seed);
        StragglerDetector detector(4, 0.12);
        std::vector<std::uint32_t> named;
        for (std::uint32_t window = 0; window < 2 * StragglerDetector::kWindows; ++window) {
            std::vector<Duration> work(4);
            for (std::size_t rank = 0; rank < work.size(); ++rank) {
                work[rank] = machine.window(rank == 2 ? 1.5 : 1);
            }
            for (const SlowRank& slow : detector.observe(work)) {
                named.push_back(slow.rank);
            }
        }
        ASSERT_FALSE(named.empty()) << "seed " << seed;
        EXPECT_EQ(named.front(), 2U) << "seed " << seed;
    }
}

TEST(StragglerDetector, TwoSlowRanksOfEightAreNamed) {
    StragglerDetector detector(8, 0.12);
    std::vector<Duration> work(8, microseconds(100'000));
    work[3] = work[6] = microseconds(120'000);
    std::vector<std::uint32_t> named;
    for (int window = 0; window < 5; ++window) {
        for (const SlowRank& slow : detector.observe(work)) {
            named.push_back(slow.rank);
        }
    }
    EXPECT_EQ(named, (std::vector<std::uint32_t>{3, 6}));
}

TEST(StragglerDetector, RankThatIsSlowInEveryOtherWindowIsNotNamed) {
    StragglerDetector detector(2, 0.12);
    const std::array<Duration, 2> even{microseconds(100'000), microseconds(100'000)};
    const std::array<Duration, 2> uneven{microseconds(100'000), microseconds(300'000)};
    for (int i = 0; i < 20; ++i) {
        EXPECT_TRUE(detector.observe(i % 2 == 0 ? even : uneven).empty()) << i;
    }
}

TEST(StragglerDetector, LessThanAMillisecondPerWindowIsIgnored) {
    const auto named = [](microseconds slow) {
        StragglerDetector detector(3, 0.12);
        std::size_t count = 0;
        for (int window = 0; window < 100; ++window) {
            count +=
                detector
                    .observe(std::array<Duration, 3>{microseconds(500), slow, microseconds(500)})
                    .size();
        }
        return count;
    };
    EXPECT_EQ(named(microseconds(1499)), 0U);
    EXPECT_EQ(named(microseconds(1500)), 1U);
}

TEST(StragglerDetector, SlowRankIsNamedOnceUntilItHasRecovered) {
    StragglerDetector detector(3, 0.12);
    const std::vector<Duration> even(3, microseconds(100'000));
    std::vector<Duration> uneven = even;
    uneven[1] *= 2;
    const auto named = [&](const std::vector<Duration>& work, std::uint32_t windows) {
        std::size_t count = 0;
        for (std::uint32_t i = 0; i < windows; ++i) {
            count += detector.observe(work).size();
        }
        return count;
    };
    EXPECT_EQ(named(uneven, 20), 1U);
    EXPECT_EQ(named(even, StragglerDetector::kWindowsMin), 0U);
    EXPECT_EQ(named(uneven, 20), 1U);
}

TEST(StragglerDetector, WorldOfOneHasNoStraggler) {
    StragglerDetector detector(1, 0.12);
    const std::vector<Duration> work{microseconds(100'000)};
    for (int i = 0; i < 10; ++i) {
        EXPECT_TRUE(detector.observe(work).empty());
    }
}

}  // namespace
}  // namespace regroup::rendezvous
