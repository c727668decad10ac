// SPDX-License-Identifier: Apache-2.0
// Memory of several processes, and their meeting at a barrier in it.
#include <atomic>
#include <cstdlib>
#include <filesystem>
#include <optional>
#include <sys/fsuid.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/patience.h"
#include "worker_sdk/src/cpu/node_barrier.h"
#include "worker_sdk/src/cpu/shared_memory.h"

namespace regroup::cpu {
namespace {

Instant soon() {
    return after(SteadyClock().now(), kPatience);
}

TEST(SharedMemory, MemoryIsSharedWithTheHolderOfItsTicket) {
    const SharedMemory made = SharedMemory::create(5000, true);
    EXPECT_EQ(made.bytes(), 8192U);
    const auto opened = SharedMemory::open(made.ticket());
    ASSERT_TRUE(opened);
    EXPECT_EQ(opened->bytes(), made.bytes());
    EXPECT_NE(opened->data(), made.data());
    EXPECT_EQ(opened->data()[8191], std::byte{0});
    made.data()[8191] = std::byte{7};
    EXPECT_EQ(opened->data()[8191], std::byte{7});
}

TEST(SharedMemory, MemoryOfAnotherUserIsRefused) {
    if (::geteuid() != 0) {
        GTEST_SKIP() << "only root can open it otherwise";
    }
    std::optional<SharedMemory> made;
    std::thread([&] {
        ::setfsuid(65534);  // Of this thread.
        made = SharedMemory::create(4096, false);
    }).join();
    EXPECT_FALSE(SharedMemory::open(made->ticket()));
}

TEST(SharedMemory, WrongTicketIsRefused) {
    SharedMemory made = SharedMemory::create(4096, false);
    const SharedMemory::Ticket right = made.ticket();
    SharedMemory::Ticket wrong = right;
    wrong.file.inode += 1;
    EXPECT_FALSE(SharedMemory::open(wrong));
    wrong = right;
    wrong.file.device += 1;
    EXPECT_FALSE(SharedMemory::open(wrong));
    wrong = right;
    wrong.bytes += 4096;
    EXPECT_FALSE(SharedMemory::open(wrong));
    wrong = right;
    wrong.file.descriptor = 0;
    EXPECT_FALSE(SharedMemory::open(wrong));
    EXPECT_FALSE(SharedMemory::open({}));
    EXPECT_TRUE(SharedMemory::open(right));
    made.close_ticket();
    EXPECT_FALSE(SharedMemory::open(right));
    EXPECT_EQ(made.ticket().bytes, 0U);
}

TEST(SharedMemory, TicketToAFileOfTheUserIsRefused) {
    std::string name = std::filesystem::temp_directory_path() / "regroup-shared-XXXXXX";
    const UniqueFd named(::mkstemp(name.data()));
    ASSERT_TRUE(named);
    EXPECT_EQ(::ftruncate(named.get(), 4096), 0);
    EXPECT_FALSE(SharedMemory::open({.bytes = 4096, .file = FileTicket::of(named)}));
    ::unlink(name.c_str());
}

/// The barrier of some processes that share `words`, with and without a processor for each.
class Barriers : public ::testing::TestWithParam<bool> {
   protected:
    NodeBarrier make(std::uint32_t world_size, bool* hopeless = nullptr) {
        return {words(), world_size, GetParam(),
                [hopeless] { return hopeless != nullptr && *hopeless; }};
    }
    BarrierWords& words() { return *reinterpret_cast<BarrierWords*>(memory_.data()); }

   private:
    SharedMemory memory_ = SharedMemory::create(sizeof(BarrierWords), true);
};

INSTANTIATE_TEST_SUITE_P(CrowdedOrNot, Barriers, ::testing::Bool());

TEST_P(Barriers, NoRankPassesBeforeAllHaveEntered) {
    constexpr std::uint32_t kRanks = 4;
    constexpr std::uint32_t kPassages = 500;
    std::atomic<std::uint32_t> arrived = 0;
    std::vector<std::jthread> threads;
    // The counters wrap around in long runs: begin shortly before.
    words().arrivals = kRanks * (0U - 100U);
    words().passages = 0U - 100U;
    for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
        threads.emplace_back([&] {
            NodeBarrier barrier(words(), kRanks, GetParam(), [] { return false; }, 0U - 100U);
            for (std::uint32_t passage = 1; passage <= kPassages; ++passage) {
                ++arrived;
                ASSERT_EQ(barrier.pass(soon()), NodeBarrier::Outcome::passed);
                ASSERT_GE(arrived, passage * kRanks);
            }
        });
    }
}

TEST_P(Barriers, WaitEndsAtTheDeadline) {
    NodeBarrier barrier = make(2);
    const Instant deadline = after(SteadyClock().now(), std::chrono::milliseconds(100));
    EXPECT_EQ(barrier.pass(deadline), NodeBarrier::Outcome::expired);
    EXPECT_GE(SteadyClock().now(), deadline);
}

TEST_P(Barriers, WaitEndsWhenStopped) {
    NodeBarrier barrier = make(2);
    const std::jthread stopper([&] { barrier.stop(); });
    EXPECT_EQ(barrier.pass(soon()), NodeBarrier::Outcome::stopped);
    EXPECT_EQ(barrier.pass(soon()), NodeBarrier::Outcome::stopped);
}

TEST_P(Barriers, WaitEndsWhenARankHasGivenUp) {
    bool hopeless = true;
    NodeBarrier barrier = make(2, &hopeless);
    EXPECT_EQ(barrier.pass(soon()), NodeBarrier::Outcome::hopeless);
}

}  // namespace
}  // namespace regroup::cpu
