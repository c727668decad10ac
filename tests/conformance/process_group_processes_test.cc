// SPDX-License-Identifier: Apache-2.0
// Ranks as processes, started by hand as a person would: with four variables and no launcher.
#include <regroup/regroup.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <new>
#include <random>
#include <string>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/hand_started_ranks.h"

namespace regroup {
namespace {

using testing::join;
using testing::start_ranks;
using testing::status_of;

TEST(Processes, ProcessesStartedByHandFormAGroupAndAgree) {
    const std::vector<pid_t> pids = start_ranks(3, [] {
        const Context context = Context::from_environment();
        const auto group = join(context);
        std::vector<double> values(10007, context.rank + 1.0);
        group->all_reduce(std::span(values), ReduceOp::sum).wait();
        group->barrier().wait();
        return values.front() == 6.0 && values.back() == 6.0;
    });
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
}

/// One collective, to be repeated until a rank dies in it.
struct Step {
    const char* name;
    std::function<void(ProcessGroup&, std::vector<float>& rows, std::vector<float>& row)> run;
};

const std::vector<Step> kSteps = {
    {"all_reduce",
     [](auto& g, auto& rows, auto&) { g.all_reduce(std::span(rows), ReduceOp::max).wait(); }},
    {"reduce",
     [](auto& g, auto& rows, auto&) { g.reduce(std::span(rows), ReduceOp::max, 1).wait(); }},
    {"reduce_scatter",
     [](auto& g, auto& rows, auto& row) {
         g.reduce_scatter(std::span(rows), std::span(row), ReduceOp::max).wait();
     }},
    {"broadcast", [](auto& g, auto& rows, auto&) { g.broadcast(std::span(rows), 1).wait(); }},
    {"all_gather",
     [](auto& g, auto& rows, auto& row) { g.all_gather(std::span(row), std::span(rows)).wait(); }},
    {"gather",
     [](auto& g, auto& rows, auto& row) { g.gather(std::span(row), std::span(rows), 1).wait(); }},
    {"scatter",
     [](auto& g, auto& rows, auto& row) { g.scatter(std::span(rows), std::span(row), 1).wait(); }},
    {"all_to_all",
     [](auto& g, auto& rows, auto&) {
         std::vector<float> exchanged(rows.size());
         g.all_to_all(std::span(rows), std::span(exchanged)).wait();
     }},
    {"barrier", [](auto& g, auto&, auto&) { g.barrier().wait(); }},
};

void expect_the_killed_rank_is_named(const Step& step, std::size_t row_count) {
    SCOPED_TRACE(std::string(step.name) + " of rows of " + std::to_string(row_count));
    const std::vector<pid_t> pids = start_ranks(5, [&] {
        const Context context = Context::from_environment();
        std::vector<float> rows(row_count * context.world_size, 1.0F);
        std::vector<float> row(row_count, 1.0F);
        std::string operation;
        try {
            // A rank that only sends may be ten operations ahead, and dead, before another has
            // joined.
            const auto group = join(context);
            operation = std::string(step.name) + " #";
            for (int i = 1;; ++i) {
                if (context.rank == 3 && i == 10) {
                    ::raise(SIGKILL);
                }
                step.run(*group, rows, row);
            }
        } catch (const Error& error) {
            const std::string text = error.what();
            const bool right = error.code() == Errc::disconnected &&
                               text.find("rank 3 (127.0.0.1:") != std::string::npos &&
                               text.find(operation) != std::string::npos;
            if (!right) {
                std::fprintf(stderr, "rank %u: %s\n", context.rank, error.what());
            }
            return right;
        }
    });
    for (std::size_t rank = 0; rank < pids.size(); ++rank) {
        const int status = status_of(pids[rank]);
        if (rank == 3) {
            EXPECT_TRUE(WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL);
        } else {
            EXPECT_EQ(status, 0) << "rank " << rank;
        }
    }
}

TEST(Processes, ProcessKilledInAnyCollectiveIsNamedByAllOthers) {
    for (const Step& step : kSteps) {
        for (const std::size_t row_count : {std::size_t{1}, std::size_t{1} << 17U}) {
            expect_the_killed_rank_is_named(step, row_count);
        }
    }
}

/// Ends its readers once no writer is left.
struct Pipe {
    Pipe() { EXPECT_EQ(::pipe(ends.data()), 0); }
    ~Pipe() {
        ::close(ends[0]);
        ::close(ends[1]);
    }
    Pipe(const Pipe&) = delete;
    Pipe& operator=(const Pipe&) = delete;

    void wait_for_byte() const {
        char byte = 0;
        EXPECT_EQ(::read(ends[0], &byte, 1), 1);
    }
    void send_byte() const { EXPECT_EQ(::write(ends[1], "", 1), 1); }

    std::array<int, 2> ends{};
};

// As data loaders are forked from a rank: they have its connections too, and outlive it.
TEST(Processes, KilledProcessIsMissedThoughItsChildLives) {
    const Pipe alive;
    const auto start = std::chrono::steady_clock::now();
    const std::vector<pid_t> pids = start_ranks(3, [&] {
        const Context context = Context::from_environment();
        const auto group = join(context);
        float value = 1;
        if (context.rank == 1) {
            group->all_reduce(std::span(&value, 1), ReduceOp::sum).wait();
            const pid_t child = ::fork();
            if (child == 0) {
                ::close(alive.ends[1]);
                char byte = 0;
                static_cast<void>(::read(alive.ends[0], &byte, 1));
                ::_exit(0);
            }
            ::raise(SIGKILL);
        }
        try {
            group->all_reduce(std::span(&value, 1), ReduceOp::sum).wait();
            group->all_reduce(std::span(&value, 1), ReduceOp::sum).wait();
        } catch (const Error& error) {
            return error.code() == Errc::disconnected &&
                   std::string(error.what()).find("rank 1 (127.0.0.1:") != std::string::npos;
        }
        return false;
    });
    EXPECT_EQ(status_of(pids[0]), 0);
    EXPECT_EQ(status_of(pids[2]), 0);
    EXPECT_LT(std::chrono::steady_clock::now() - start, std::chrono::seconds(30));
    EXPECT_TRUE(WIFSIGNALED(status_of(pids[1])));
}

/// Repeats `step` until the stopped rank 2 is missed; true if the error says so. A stopped process
/// keeps its connections, so that only the limit of an operation ends the wait for it.
bool repeat_until_a_rank_is_missed(const Step& step, std::size_t row_count, const Pipe& begun) {
    Context context = Context::from_environment();
    context.cpu_transport = "tcp";
    const auto group = ProcessGroup::create("cpu", context, {.timeout = kPatience});
    std::vector<float> rows(row_count * context.world_size);
    std::vector<float> row(row_count);
    group->barrier().wait();  // All ranks are there before the short limit holds.
    if (context.rank == 2) {
        begun.send_byte();
    }
    try {
        while (true) {
            step.run(*group, rows, row);
        }
    } catch (const Error& error) {
        const std::string text = error.what();
        const auto says = [&](const char* words) { return text.find(words) != std::string::npos; };
        const bool right = error.code() == Errc::deadline_exceeded && says("rank 2 (127.0.0.1:") &&
                           says("did not answer") && !says("has not joined in");
        if (!right) {
            std::fprintf(stderr, "rank %u: %s\n", context.rank, error.what());
        }
        return right;
    }
}

TEST(Processes, StoppedProcessIsNamedByAllOthersAsTheOneThatDoesNotAnswer) {
    static const OperationOptions kLimited{.timeout = std::chrono::seconds(2)};
    const std::vector<std::pair<Step, std::size_t>> cases = {
        {{"all_reduce",
          [](auto& g, auto& rows, auto&) {
              g.all_reduce(std::span(rows), ReduceOp::max, kLimited).wait();
          }},
         1},
        {{"large all_reduce",
          [](auto& g, auto& rows, auto&) {
              g.all_reduce(std::span(rows), ReduceOp::max, kLimited).wait();
          }},
         std::size_t{1} << 18U},
        {{"all_gather",
          [](auto& g, auto& rows, auto& row) {
              g.all_gather(std::span(row), std::span(rows), kLimited).wait();
          }},
         1000},
        {{"barrier", [](auto& g, auto&, auto&) { g.barrier(kLimited).wait(); }}, 1},
    };
    const Pipe begun;
    std::vector<std::vector<pid_t>> worlds;
    for (const auto& [step, row_count] : cases) {
        worlds.push_back(
            start_ranks(5, [&] { return repeat_until_a_rank_is_missed(step, row_count, begun); }));
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
        begun.wait_for_byte();
    }
    for (const std::vector<pid_t>& pids : worlds) {
        EXPECT_EQ(::kill(pids[2], SIGSTOP), 0);
    }
    for (std::size_t i = 0; i < cases.size(); ++i) {
        SCOPED_TRACE(cases[i].first.name);
        for (const std::size_t rank : {0U, 1U, 3U, 4U}) {
            EXPECT_EQ(status_of(worlds[i][rank]), 0) << "rank " << rank;
        }
        EXPECT_EQ(::kill(worlds[i][2], SIGKILL), 0);
        EXPECT_TRUE(WIFSIGNALED(status_of(worlds[i][2])));
    }
}

/// Goes on until a rank is killed; true if the error says so. The others may still be in their
/// first collective then, which is the memory's.
bool reduce_until_a_death(ProcessGroup& group, std::size_t count, bool allocated,
                          const std::function<void()>& begun) {
    try {
        std::vector<float> own(allocated ? 0 : count);
        const Buffer buffer = group.allocate(allocated ? count * sizeof(float) : 0);
        const auto values = allocated ? std::span(static_cast<float*>(buffer.data), count) : own;
        begun();
        while (true) {
            // Zeroes stay what they are.
            group.all_reduce(values, ReduceOp::sum).wait();
            if (std::any_of(values.begin(), values.end(), [](float v) { return v != 0.0F; })) {
                std::fprintf(stderr, "rank %u: a sum of zeroes is not zero\n", group.rank());
                return false;
            }
        }
    } catch (const Error& error) {
        const bool named =
            error.code() == Errc::disconnected &&
            std::string(error.what()).find("rank 2 (127.0.0.1:") != std::string::npos;
        if (!named) {
            std::fprintf(stderr, "rank %u: %s\n", group.rank(), error.what());
        }
        return named;
    }
}

TEST(Processes, ProcessKilledAtAnyMomentIsNamedByAllOthers) {
    constexpr std::size_t kCount = std::size_t{1} << 20U;
    std::mt19937 random(20250611);
    std::uniform_int_distribution<int> delay_us(0, 30000);
    for (int round = 0; round < 12; ++round) {
        const bool allocated = round % 2 == 0;
        const std::size_t count = round % 3 == 0 ? 100 : kCount;
        SCOPED_TRACE((allocated ? "allocated, " : "own memory, ") + std::to_string(count));
        const Pipe begun;
        const std::vector<pid_t> pids = start_ranks(4, [&] {
            const Context context = Context::from_environment();
            const auto group = join(context);
            return reduce_until_a_death(*group, count, allocated, [&] {
                if (context.rank == 2) {
                    begun.send_byte();
                }
            });
        });
        begun.wait_for_byte();
        const auto moment =
            std::chrono::steady_clock::now() + std::chrono::microseconds(delay_us(random));
        while (std::chrono::steady_clock::now() < moment) {
            std::this_thread::yield();
        }
        EXPECT_EQ(::kill(pids[2], SIGKILL), 0);
        for (std::size_t rank = 0; rank < pids.size(); ++rank) {
            const int status = status_of(pids[rank]);
            EXPECT_TRUE(rank == 2 ? WIFSIGNALED(status) : status == 0) << "rank " << rank;
        }
    }
}

/// Memory of this process and of all that it forks.
template <class T>
class SharedValue {
   public:
    SharedValue()
        : memory_(::mmap(nullptr, sizeof(T), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1,
                         0)) {
        if (memory_ == MAP_FAILED) {
            std::abort();
        }
        new (memory_) T{};
    }
    ~SharedValue() { ::munmap(memory_, sizeof(T)); }
    SharedValue(const SharedValue&) = delete;
    SharedValue& operator=(const SharedValue&) = delete;

    [[nodiscard]] T* operator->() const { return static_cast<T*>(memory_); }

   private:
    void* memory_;
};

std::int64_t now_ns() {
    return std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

/// Rank 1 of three is killed while the others are in `step`, which it never joins (`joins`: which
/// all of them do again and again). The others must hear that it is gone, long before the time of
/// the operation is over.
void expect_release_after_death(const Step& step, bool joins) {
    constexpr std::size_t kRow = std::size_t{1} << 20U;
    const SharedValue<std::atomic<std::uint32_t>> blocked;  // Ranks about to enter what blocks.
    const std::vector<pid_t> pids = start_ranks(3, [&] {
        const Context context = Context::from_environment();
        const auto group = join(context);
        std::vector<float> rows(kRow * context.world_size);
        std::vector<float> row(kRow);
        step.run(*group, rows, row);  // All ranks are connected, and the memory is allocated.
        blocked->fetch_add(1);
        try {
            while (context.rank == 1 && !joins) {
                ::pause();
            }
            while (true) {
                step.run(*group, rows, row);
            }
        } catch (const Error& error) {
            return error.code() == Errc::disconnected;
        }
    });
    EXPECT_TRUE(testing::eventually([&] { return blocked->load() == 3; }));
    const std::int64_t begun = now_ns();
    testing::eventually([&] { return now_ns() - begun > 50'000'000; });  // In the middle of it.
    ::kill(pids[1], SIGKILL);
    for (const std::size_t rank : {0U, 2U}) {
        EXPECT_EQ(status_of(pids[rank]), 0) << "rank " << rank;
    }
    EXPECT_TRUE(WIFSIGNALED(status_of(pids[1])));
}

TEST(Processes, RankBlockedInACollectiveIsReleasedByADeath) {
    for (const Step& step : kSteps) {
        const std::string name = step.name;
        if (name != "all_reduce" && name != "barrier") {
            continue;
        }
        for (const bool joins : {false, true}) {
            SCOPED_TRACE(name + (joins ? ", joined" : ", not joined"));
            expect_release_after_death(step, joins);
        }
    }
}

TEST(Processes, SingleProcessNeedsNoVariables) {
    for (const char* const name : {"RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT"}) {
        ::unsetenv(name);
    }
    const Context context = Context::from_environment();
    const auto group = join(context);
    EXPECT_EQ(group->world_size(), 1U);
    float value = 3;
    group->all_reduce(std::span(&value, 1), ReduceOp::avg).wait();
    EXPECT_EQ(value, 3);
    context.store()->set("key", "value");
    EXPECT_EQ(context.store()->get("key"), "value");
}

}  // namespace
}  // namespace regroup
