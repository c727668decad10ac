// SPDX-License-Identifier: Apache-2.0
// A forked child of a rank may do nothing with the objects of its parent, and does no harm.
#include <regroup/regroup.h>

#include <cstdlib>
#include <functional>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "tests/conformance/hand_started_ranks.h"

namespace regroup {
namespace {

using testing::join;
using testing::start_ranks;
using testing::status_of;

constexpr int kRefused = 17;
constexpr unsigned kChildSeconds = 50;

// Destroyed when a process exits, as the globals of many programs are.
std::unique_ptr<ProcessGroup> global_group;
std::optional<Context> global_context;

/// Runs `body` in a forked child, whose exit code it returns; 128 + the signal otherwise.
int in_child(const std::function<void()>& body) {
    const pid_t child = ::fork();
    if (child == 0) {
        ::alarm(kChildSeconds);  // It must not hang.
        body();
        ::_exit(0);
    }
    const int status = status_of(child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

bool is_refused(const std::function<void()>& call) {
    try {
        call();
    } catch (const Error& error) {
        const bool right = error.code() == Errc::invalid_argument &&
                           std::string(error.what()).find("was forked") != std::string::npos;
        if (!right) {
            std::fprintf(stderr, "refused otherwise: %s\n", error.what());
        }
        return right;
    }
    return false;
}

/// True if all ranks, which call this, get the sum of 1 to the size of the world.
bool sums_are_right(ProcessGroup& group) {
    for (int i = 0; i < 3; ++i) {
        std::vector<float> values(100, static_cast<float>(group.rank() + 1));
        group.all_reduce(std::span(values), ReduceOp::sum).wait();
        if (values.front() != 6 || values.back() != 6) {
            std::fprintf(stderr, "rank %u: %f\n", group.rank(), values.front());
            return false;
        }
    }
    return true;
}

/// Lets each of three ranks fork a child that runs `body`, and expects its exit code `expected` and
/// the right sums afterwards.
void expect_harmless(int expected, const std::function<void(ProcessGroup&)>& body) {
    const std::vector<pid_t> pids = start_ranks(3, [&] {
        const Context context = Context::from_environment();
        const auto group = join(context);
        const bool before = sums_are_right(*group);
        const int code = in_child([&] { body(*group); });
        if (code != expected) {
            std::fprintf(stderr, "the child ended with %d, not %d\n", code, expected);
        }
        return before && code == expected && sums_are_right(*group);
    });
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
}

TEST(Forks, EveryOperationOfAForkedChildIsRefused) {
    expect_harmless(kRefused, [](ProcessGroup& group) {
        std::vector<float> row(100, 1000);
        std::vector<float> rows(300, 1000);
        const std::uint32_t next = (group.rank() + 1) % 3;
        const std::vector<std::function<void()>> calls{
            [&] { group.all_reduce(std::span(row), ReduceOp::sum).wait(); },
            [&] { group.reduce(std::span(row), ReduceOp::sum, 0).wait(); },
            [&] { group.reduce_scatter(std::span(rows), std::span(row), ReduceOp::sum).wait(); },
            [&] { group.broadcast(std::span(row), 0).wait(); },
            [&] { group.all_gather(std::span(row), std::span(rows)).wait(); },
            [&] { group.barrier().wait(); },
            [&] { group.send(std::span(row), next).wait(); },
            [&] { group.recv(std::span(row), next).wait(); },
            [&] { static_cast<void>(group.new_group({0, 1, 2}, "part")); },
            [&] { static_cast<void>(group.allocate(4096)); },
            [&] { const DistributedDataParallel ddp(group, {{std::span(row), std::span(row)}}); },
        };
        int refused = 0;
        for (const auto& call : calls) {
            refused += is_refused(call) ? 1 : 0;
        }
        group.abort("the child has no say");
        ::_exit(refused == static_cast<int>(calls.size()) ? kRefused : refused);
    });
}

TEST(Forks, ForkedChildCannotCarryOutWhatItsParentHasIssued) {
    const std::vector<pid_t> pids = start_ranks(3, [] {
        const Context context = Context::from_environment();
        const auto group = join(context);
        std::vector<float> values(100, static_cast<float>(context.rank + 1));
        float late = 0;
        const Work work = group->all_reduce(std::span(values), ReduceOp::sum);
        const bool receives = context.rank == 0;
        const Work message = receives ? group->recv(std::span(&late, 1), 1) : Work();
        const int code = in_child([&] {
            const bool refused = is_refused([&] { work.wait(); }) && work.done() &&
                                 (!receives || is_refused([&] { message.wait(); }));
            ::_exit(refused ? kRefused : 1);
        });
        work.wait();
        if (context.rank == 1) {
            late = 5;
            group->send(std::span(&late, 1), 0).wait();
        }
        message.wait();
        return code == kRefused && values.front() == 6 && (!receives || late == 5);
    });
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
}

TEST(Forks, ForkedChildMayExitAndUnwindWithTheObjectsOfItsParent) {
    const std::vector<pid_t> pids = start_ranks(3, [] {
        global_context = Context::from_environment();
        static_cast<void>(global_context->store());  // Rank 0 serves it, with a thread.
        global_group = join(*global_context);
        const Buffer memory = global_group->allocate(8192);
        const auto part = global_group->new_group({0, 1, 2}, "part");
        std::vector<float> values(100, 1);
        const Work work = part->all_reduce(std::span(values), ReduceOp::sum);
        const int exited = in_child([] { std::exit(3); });
        const int unwound = in_child([] {
            try {
                const auto group = std::move(global_group);
                const auto context = std::move(global_context);
                throw std::runtime_error("as a failing data loader");
            } catch (const std::runtime_error&) {
                ::_exit(4);
            }
        });
        work.wait();
        const bool right = exited == 3 && unwound == 4 && values.front() == 3 &&
                           sums_are_right(*global_group) && sums_are_right(*part);
        if (!right) {
            std::fprintf(stderr, "the children ended with %d and %d\n", exited, unwound);
        }
        global_group.reset();
        global_context.reset();
        return right;
    });
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
}

TEST(Forks, ForkedChildCannotUseTheConnectionOfAStore) {
    const std::vector<pid_t> pids = start_ranks(3, [] {
        const Context context = Context::from_environment();
        const auto store = context.store();
        const std::string key = "rank" + std::to_string(context.rank);
        store->set(key, "value");
        const int code = in_child([&] {
            const bool refused = is_refused([&] { store->set(key, "the child's"); }) &&
                                 is_refused([&] { static_cast<void>(store->get(key)); }) &&
                                 is_refused([&] { static_cast<void>(store->add("n", 1)); });
            // One of its own is good.
            const auto own = connect_store(context.master_addr, context.master_port, kPatience);
            ::_exit(refused && own->get(key) == "value" ? kRefused : 1);
        });
        const bool right = code == kRefused && store->get(key) == "value";
        join(context)->barrier().wait();  // Rank 0 serves the store until all are done.
        return right;
    });
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
}

TEST(Forks, ChildrenThatBeginWithExecDoNoHarm) {
    const std::vector<pid_t> pids = start_ranks(3, [] {
        const Context context = Context::from_environment();
        const auto group = join(context);
        const bool before = sums_are_right(*group);
        const int forked = in_child([] { ::execl("/bin/sh", "sh", "-c", "exit 5", nullptr); });
        const int started = std::system("exit 6");
        return before && forked == 5 && WEXITSTATUS(started) == 6 && sums_are_right(*group);
    });
    for (const pid_t pid : pids) {
        EXPECT_EQ(status_of(pid), 0);
    }
}

}  // namespace
}  // namespace regroup
