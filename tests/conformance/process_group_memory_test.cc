// SPDX-License-Identifier: Apache-2.0
// Memory from `allocate`, and shared memory between ranks.
#include <atomic>
#include <barrier>
#include <cmath>
#include <cstring>
#include <mutex>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/cpu/cpu_process_group.h"
#include "worker_sdk/src/group/owned_group.h"

namespace regroup {
namespace {

using testing::World;

template <class T>
std::span<T> span_of(const Buffer& buffer) {
    return {static_cast<T*>(buffer.data), buffer.bytes / sizeof(T)};
}

bool shares_memory(const ProcessGroup& group) {
    const auto* const cpu_group =
        dynamic_cast<const cpu::CpuProcessGroup*>(&OwnedGroup::within(group));
    return cpu_group != nullptr && cpu_group->shares_memory();
}

/// Sums of these depend on the order of addition.
void fill(std::span<float> values, std::uint32_t rank) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = std::sin(static_cast<float>(i * 31 + std::size_t{rank} * 17)) * 1e3F;
    }
}

bool same_bits(std::span<const float> a, std::span<const float> b) {
    return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size_bytes()) == 0;
}

// Several parts, and no multiple of a part.
constexpr std::size_t kPartsCount = 1'300'021;

TEST(Allocate, EachRankGetsZeroedPages) {
    run_ranks(3, [](ProcessGroup& group) {
        for (const std::size_t bytes : {std::size_t{1}, std::size_t{4096}, std::size_t{10001}}) {
            const Buffer buffer = group.allocate(bytes);
            EXPECT_EQ(buffer.bytes, bytes);
            EXPECT_EQ(buffer.device, Device());
            EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 4096, 0U);
            for (const std::byte value : span_of<std::byte>(buffer)) {
                ASSERT_EQ(value, std::byte{0});
            }
            std::memset(buffer.data, static_cast<int>(group.rank()) + 1, bytes);
            group.barrier().wait();
            EXPECT_EQ(span_of<std::byte>(buffer).back(), static_cast<std::byte>(group.rank() + 1));
            group.barrier().wait();
        }
        EXPECT_EQ(group.allocate(0).bytes, 0U);
    });
}

TEST(Allocate, DifferentSizesAreRefusedOnAllRanks) {
    run_ranks(3, [](ProcessGroup& group) {
        EXPECT_THAT(error_of([&] { (void)group.allocate(group.rank() == 1 ? 8192U : 4096U); }),
                    is_error(Errc::invalid_argument, "8192"));
        EXPECT_EQ(group.allocate(64).bytes, 64U);
    });
}

TEST(Allocate, TooLargeAllocationIsAnErrorOnAllRanks) {
    run_ranks(2, [](ProcessGroup& group) {
        EXPECT_THAT(error_of([&] { (void)group.allocate(std::size_t{1} << 50U); }),
                    is_error(Errc::system, "no 1125899906842624 bytes"));
        group.barrier().wait();
    });
}

TEST(Allocate, MemoryOutlivesItsGroup) {
    std::mutex mutex;
    std::vector<Buffer> buffers;
    run_ranks(2, [&](ProcessGroup& group) {
        Buffer buffer = group.allocate(8192);
        std::memset(buffer.data, 7, buffer.bytes);
        const std::lock_guard lock(mutex);
        buffers.push_back(std::move(buffer));
    });
    for (const Buffer& buffer : buffers) {
        EXPECT_EQ(span_of<std::byte>(buffer)[8191], std::byte{7});
    }
}

/// Where the ranks' buffers lie.
enum class Where : std::uint8_t { all, none, some, several_regions, unlike_offsets };

class Memory : public ::testing::TestWithParam<Where> {};

INSTANTIATE_TEST_SUITE_P(Places, Memory,
                         ::testing::Values(Where::all, Where::none, Where::some,
                                           Where::several_regions, Where::unlike_offsets));

/// Buffers of one rank, in such places.
class Places {
   public:
    Places(ProcessGroup& group, Where where) : group_(group), where_(where) {}

    std::span<float> make(std::size_t count) {
        const std::size_t bytes = (count + 64) * sizeof(float);
        const Buffer first = group_.allocate(bytes);
        const Buffer second = group_.allocate(bytes);
        kept_.push_back(group_.rank() % 2 == 0 || where_ != Where::several_regions ? first
                                                                                   : second);
        own_.emplace_back(count);
        const bool own = where_ == Where::none || (where_ == Where::some && group_.rank() == 1);
        const std::size_t offset = where_ == Where::unlike_offsets ? group_.rank() * 3 : 0;
        return own ? std::span(own_.back()) : span_of<float>(kept_.back()).subspan(offset, count);
    }

   private:
    ProcessGroup& group_;
    const Where where_;
    std::vector<Buffer> kept_;
    std::deque<std::vector<float>> own_;
};

TEST_P(Memory, EveryCollectiveAcceptsEveryPlace) {
    for (const std::uint32_t n : {2U, 3U, 4U}) {
        run_ranks(n, [&](ProcessGroup& group) {
            const std::uint32_t me = group.rank();
            const auto value = [&](std::uint32_t rank, std::size_t i) {
                return static_cast<float>((i * 7 + std::size_t{rank} * 13) % 5);
            };
            const auto put = [&](std::span<float> values) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    values[i] = value(me, i);
                }
            };
            const auto sum = [&](std::size_t i) {
                float total = 0;
                for (std::uint32_t rank = 0; rank < n; ++rank) {
                    total += value(rank, i);
                }
                return total;
            };
            const auto check = [&](std::span<const float> values, const char* what, auto expected) {
                for (std::size_t i = 0; i < values.size(); ++i) {
                    ASSERT_EQ(values[i], expected(i)) << what << ", element " << i;
                }
            };
            Places places(group, GetParam());
            const std::size_t row = kPartsCount / 4;
            const std::span<float> one = places.make(row);
            const std::span<float> rows = places.make(row * n);
            const std::span<float> others = places.make(row * n);
            const auto row_of = [&](std::size_t i) { return static_cast<std::uint32_t>(i / row); };

            put(rows);
            group.all_reduce(rows, ReduceOp::avg).wait();
            check(rows, "all_reduce",
                  [&](std::size_t i) { return sum(i) / static_cast<float>(n); });
            put(one);
            group.all_reduce(one, Reduction::premultiplied_sum(2.0)).wait();
            check(one, "premultiplied", [&](std::size_t i) { return 2 * sum(i); });
            put(one);
            group.reduce(one, ReduceOp::sum, 1).wait();
            check(one, "reduce", [&](std::size_t i) { return me == 1 ? sum(i) : value(me, i); });
            put(one);
            group.broadcast(one, 1).wait();
            check(one, "broadcast", [&](std::size_t i) { return value(1, i); });
            put(rows);
            group.reduce_scatter(rows, one, ReduceOp::sum).wait();
            check(one, "reduce_scatter", [&](std::size_t i) { return sum(me * row + i); });
            put(one);
            group.all_gather(one, rows).wait();
            check(rows, "all_gather", [&](std::size_t i) { return value(row_of(i), i % row); });
            put(rows.subspan(me * row, row));
            group.all_gather(rows.subspan(me * row, row), rows).wait();
            check(rows, "in place", [&](std::size_t i) { return value(row_of(i), i % row); });
            group.gather(one, others, 0).wait();
            if (me == 0) {
                check(others, "gather", [&](std::size_t i) { return value(row_of(i), i % row); });
            }
            put(rows);
            group.scatter(rows, one, 1).wait();
            check(one, "scatter", [&](std::size_t i) { return value(1, me * row + i); });
            group.all_to_all(rows, others).wait();
            check(others, "all_to_all",
                  [&](std::size_t i) { return value(row_of(i), me * row + i % row); });
        });
    }
}

TEST_P(Memory, SumIsTheSameToTheBitInEveryPlace) {
    std::mutex mutex;
    std::vector<std::vector<float>> results;
    for (const Where where : {Where::none, GetParam()}) {
        run_ranks(3, [&](ProcessGroup& group) {
            Places places(group, where);
            const std::span<float> values = places.make(kPartsCount);
            fill(values, group.rank());
            group.all_reduce(values, ReduceOp::sum).wait();
            const std::lock_guard lock(mutex);
            results.emplace_back(values.begin(), values.end());
        });
    }
    for (const auto& result : results) {
        EXPECT_TRUE(same_bits(result, results.front()));
    }
}

TEST(SharedMemory, SumDoesNotDependOnHowTheBufferIsDivided) {
    run_ranks(3, [](ProcessGroup& group) {
        if (!shares_memory(group)) {
            return;  // Over TCP the order of addition depends on the place in the buffer.
        }
        std::vector<float> whole(kPartsCount);
        fill(whole, group.rank());
        std::vector<float> parts = whole;
        group.all_reduce(std::span(whole), ReduceOp::sum).wait();
        std::size_t first = 0;
        for (std::size_t count = 1; first < parts.size(); count *= 7) {
            count = std::min(count, parts.size() - first);
            group.all_reduce(std::span(parts).subspan(first, count), ReduceOp::sum).wait();
            first += count;
        }
        EXPECT_TRUE(same_bits(whole, parts));
    });
}

TEST(SharedMemory, CollectivesWithoutAWaitAreCarriedOut) {
    run_ranks(2, [](ProcessGroup& group) {
        std::vector<float> small(10, 1.0F);
        std::vector<float> large(kPartsCount, 1.0F);
        const Work first = group.all_reduce(std::span(small), ReduceOp::sum);
        const Work second = group.all_reduce(std::span(large), ReduceOp::sum);
        while (!first.done() || !second.done()) {
            std::this_thread::yield();
        }
        EXPECT_EQ(small.back(), 2.0F);
        EXPECT_EQ(large.back(), 2.0F);
    });
}

/// Each of a few threads waits for some of them.
void wait_in_threads(const std::vector<Work>& works) {
    constexpr std::size_t kThreads = 3;
    std::vector<std::jthread> waiters;
    for (std::size_t first = 0; first < kThreads; ++first) {
        waiters.emplace_back([&works, first] {
            for (std::size_t i = first; i < works.size(); i += kThreads) {
                works[i].wait();
            }
        });
    }
}

TEST(SharedMemory, ManyThreadsMayWaitAtOnce) {
    run_ranks(2, [](ProcessGroup& group) {
        for (int round = 0; round < 50; ++round) {
            std::vector<double> values(1000, 1.0);
            std::vector<Work> works;
            for (std::size_t i = 0; i < 20; ++i) {
                works.push_back(
                    group.all_reduce(std::span(values).subspan(i * 50, 50), ReduceOp::sum));
            }
            wait_in_threads(works);
            ASSERT_EQ(values, std::vector<double>(1000, 2.0));
        }
    });
}

TEST(SharedMemory, AbortReleasesThreadsThatWaitInALargeCollective) {
    std::barrier ready(3);
    run_ranks(3, [&](ProcessGroup& group) {
        const Buffer buffer = group.allocate(kPartsCount * sizeof(float));
        ready.arrive_and_wait();
        if (group.rank() == 2) {
            group.abort("enough of it");  // Never joins in.
            return;
        }
        EXPECT_THAT(error_of(group.all_reduce(span_of<float>(buffer), ReduceOp::sum)),
                    is_error(Errc::disconnected, "enough of it"));
    });
}

/// The groups of ranks whose contexts `change` has changed.
void with_contexts(
    const std::function<void(Context&)>& change,
    const std::function<void(const std::function<std::unique_ptr<ProcessGroup>()>&)>& body) {
    const World world(2);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < world.size; ++rank) {
        threads.emplace_back([&, rank] {
            Context context = testing::context_of_rank(rank, world.size, world.store);
            change(context);
            body([&] { return ProcessGroup::create("cpu", context, world.options); });
        });
    }
}

TEST(Transport, TransportIsSharedMemoryOnOneNodeAndTcpOtherwise) {
    struct Case {
        const char* name;
        std::function<void(Context&)> change;
        bool shared;
    };
    const std::vector<Case> cases = {
        {"one node", [](Context&) {}, true},
        {"two nodes", [](Context& context) { context.group_rank = context.rank; }, false},
        {"one that must not",
         [](Context& context) { context.cpu_transport = context.rank == 1 ? "tcp" : "auto"; },
         false},
    };
    for (const Case& one : cases) {
        with_contexts(
            [&](Context& context) {
                context.cpu_transport = "auto";
                one.change(context);
            },
            [&](const auto& join) {
                const auto group = join();
                EXPECT_EQ(shares_memory(*group), one.shared) << one.name;
                double value = 1;
                group->all_reduce(std::span(&value, 1), ReduceOp::sum).wait();
                EXPECT_EQ(value, 2.0);
                const auto part = group->new_group({1, 0}, "part");
                EXPECT_EQ(shares_memory(*part), one.shared) << one.name;
            });
    }
}

TEST(Transport, ImpossibleTransportIsAnErrorWithTheReason) {
    with_contexts(
        [](Context& context) {
            context.cpu_transport = "shm";
            context.group_rank = context.rank;
        },
        [](const auto& join) {
            EXPECT_THAT(error_of([&] { (void)join(); }),
                        is_error(Errc::invalid_argument, "its ranks are on several nodes"));
        });
    // If only one rank requires it, the others learn why that rank is gone.
    with_contexts(
        [](Context& context) {
            context.cpu_transport = context.rank == 0 ? "shm" : "auto";
            context.group_rank = context.rank;
        },
        [](const auto& join) {
            EXPECT_THAT(error_of([&] { join()->barrier().wait(); }),
                        is_error("REGROUP_CPU_TRANSPORT=shm"));
        });
    with_contexts([](Context& context) { context.cpu_transport = "pigeon"; },
                  [](const auto& join) {
                      EXPECT_THAT(error_of([&] { (void)join(); }),
                                  is_error("none of auto, tcp, shm"));
                  });
}

}  // namespace
}  // namespace regroup
