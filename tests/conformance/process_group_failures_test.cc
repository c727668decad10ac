// SPDX-License-Identifier: Apache-2.0
// How groups end: every wait ends, and the error names the culprit.
#include <atomic>
#include <barrier>
#include <future>
#include <mutex>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"
#include "worker_sdk/src/net/protection.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup {
namespace {

using testing::World;

// The limit for "at once" on a busy machine.
constexpr std::chrono::seconds kAtOnce{15};

// Limits that are meant to pass. They are those of single operations, so that a busy machine has
// all the time it needs to form the group.
OperationOptions limited_to(std::chrono::milliseconds limit) {
    return {.timeout = limit};
}

using TestClock = std::chrono::steady_clock;

/// A phase of a group's life, as one call that blocks.
struct Phase {
    const char* name;
    void (*run)(ProcessGroup& group, const OperationOptions& options);
};

void run_large_all_reduce(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> values(std::size_t{1} << 21U);
    group.all_reduce(std::span(values), ReduceOp::sum, options).wait();
}
void run_small_all_reduce(ProcessGroup& group, const OperationOptions& options) {
    float value = 1;
    group.all_reduce(std::span(&value, 1), ReduceOp::sum, options).wait();
}
void run_large_broadcast(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> values(std::size_t{1} << 21U);
    group.broadcast(std::span(values), 0, options).wait();
    group.barrier(options).wait();
}
void run_small_broadcast(ProcessGroup& group, const OperationOptions& options) {
    double value = 1;
    group.broadcast(std::span(&value, 1), 0, options).wait();
    group.barrier(options).wait();
}
void run_all_gather(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> row(100000);
    std::vector<float> all(row.size() * group.world_size());
    group.all_gather(std::span(row), std::span(all), options).wait();
}
void run_large_reduce(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> values(std::size_t{1} << 21U);
    group.reduce(std::span(values), ReduceOp::max, 0, options).wait();
    group.barrier(options).wait();
}
void run_small_reduce(ProcessGroup& group, const OperationOptions& options) {
    double value = 1;
    group.reduce(std::span(&value, 1), ReduceOp::product, 5 % group.world_size(), options).wait();
    group.barrier(options).wait();
}
void run_reduce_scatter(ProcessGroup& group, const OperationOptions& options) {
    std::vector<double> row(50000);
    std::vector<double> rows(row.size() * group.world_size());
    group.reduce_scatter(std::span(rows), std::span(row), ReduceOp::avg, options).wait();
}
void run_gather(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> row(300000);
    std::vector<float> rows(row.size() * group.world_size());
    group.gather(std::span(row), std::span(rows), 1, options).wait();
    group.barrier(options).wait();
}
void run_scatter(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> row(300000);
    std::vector<float> rows(row.size() * group.world_size());
    group.scatter(std::span(rows), std::span(row), 1, options).wait();
    group.barrier(options).wait();
}
void run_all_to_all(ProcessGroup& group, const OperationOptions& options) {
    std::vector<float> rows(std::size_t{100000} * group.world_size());
    std::vector<float> exchanged(rows.size());
    group.all_to_all(std::span(rows), std::span(exchanged), options).wait();
}
void run_new_group(ProcessGroup& group, const OperationOptions& options) {
    const auto part = group.new_group({0, 1}, "part");
    group.barrier(options).wait();
}
void run_barrier(ProcessGroup& group, const OperationOptions& options) {
    group.barrier(options).wait();
}
void run_recv(ProcessGroup& group, const OperationOptions& options) {
    float value = 0;
    group.recv(std::span(&value, 1), (group.rank() + 2) % group.world_size(), 0, options).wait();
}

class Failures : public ::testing::TestWithParam<Phase> {};

INSTANTIATE_TEST_SUITE_P(
    Phases, Failures,
    ::testing::Values(Phase{"LargeAllReduce", run_large_all_reduce},
                      Phase{"SmallAllReduce", run_small_all_reduce},
                      Phase{"LargeBroadcast", run_large_broadcast},
                      Phase{"AllGather", run_all_gather}, Phase{"LargeReduce", run_large_reduce},
                      Phase{"SmallReduce", run_small_reduce},
                      Phase{"ReduceScatter", run_reduce_scatter}, Phase{"Gather", run_gather},
                      Phase{"Scatter", run_scatter}, Phase{"AllToAll", run_all_to_all},
                      Phase{"NewGroup", run_new_group}, Phase{"Barrier", run_barrier},
                      Phase{"Recv", run_recv}),
    [](const auto& test) { return test.param.name; });

TEST_P(Failures, OneRankThatLeavesEndsThePhaseOnAllOthers) {
    const World world(6);
    constexpr std::uint32_t kLeaver = 3;
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();  // A failure may overtake the end of the barrier above.
        if (group.rank() == kLeaver) {
            return;
        }
        const auto start = TestClock::now();
        EXPECT_THAT(error_of([&] { GetParam().run(group, {}); }),
                    is_error(Errc::disconnected, "rank 3 (127.0.0.1:", "#"))
            << "rank " << group.rank();
        EXPECT_LT(TestClock::now() - start, kAtOnce);
        // The group is finished, for good.
        EXPECT_THAT(error_of([&] { run_barrier(group, {}); }), is_error(Errc::disconnected));
    });
}

TEST_P(Failures, AbortOnOneRankEndsThePhaseEverywhere) {
    const World world(4);
    std::atomic<int> waiting = 0;
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();
        if (group.rank() != 2) {
            ++waiting;
            EXPECT_THAT(error_of([&] { GetParam().run(group, {}); }),
                        is_error(Errc::disconnected, "rank 2", "enough of it"));
            return;
        }
        float value = 0;
        const Work blocked = group.recv(std::span(&value, 1), 0, 77);
        const std::jthread aborter([&] {
            while (waiting < 3) {
                std::this_thread::yield();
            }
            group.abort("enough of it");
        });
        const auto start = TestClock::now();
        EXPECT_THAT(error_of(blocked), is_error(Errc::fenced, "recv #1", "enough of it"));
        EXPECT_LT(TestClock::now() - start, kAtOnce);
        EXPECT_THAT(error_of(group.barrier()), is_error(Errc::fenced));
    });
}

/// All ranks of a world but one are in `phase`. Each names the one that never came.
void expect_absent_rank_named(const Phase& phase) {
    constexpr std::uint32_t kAbsent = 5;
    const World world(6);
    std::barrier all_over(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        const auto error = error_of([&] {
            group.barrier().wait();
            if (group.rank() != kAbsent) {
                // All other ranks must come within this limit.
                phase.run(group, limited_to(std::chrono::seconds(2)));
            }
        });
        all_over.arrive_and_wait();
        if (group.rank() == kAbsent) {
            return;
        }
        EXPECT_THAT(error, is_error(Errc::deadline_exceeded, phase.name, "within 2.0 s",
                                    ContainsRegex("rank 5 \\([^)]*\\) has not joined in"),
                                    Not(ContainsRegex("rank [0-4] \\([^)]*\\) has not"))))
            << phase.name;
    });
}

TEST(Deadlines, EveryRankNamesTheRankThatNeverCameAndNoOther) {
    // Named by the operation that the error names. Some ranks have ended the first one.
    const std::vector<Phase> phases = {
        {"all_reduce #2 (sum, 1 x float32)", run_small_all_reduce},
        {"all_reduce #2 (sum, 2097152 x float32)", run_large_all_reduce},
        {"barrier #2", run_barrier},
        {"#", run_small_broadcast},
        {"#", run_large_broadcast},
        {"#", run_small_reduce},
        {"all_gather #2 (100000 x float32)", run_all_gather},
        {"reduce_scatter #2 (avg, ", run_reduce_scatter}};
    std::vector<std::jthread> worlds;
    for (const Phase& phase : phases) {
        worlds.emplace_back([&phase] { expect_absent_rank_named(phase); });
    }
}

TEST(Deadlines, DeadlinesHoldForMessages) {
    const World world(2);
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();
        float value = 0;
        EXPECT_THAT(error_of(group.recv(std::span(&value, 1), 1 - group.rank(), 4,
                                        limited_to(std::chrono::milliseconds(200)))),
                    is_error(Errc::deadline_exceeded, "recv #1 from rank", "tag 4"));
    });
}

TEST(Deadlines, DeadlinesHoldWhileTheGroupForms) {
    World world(4);
    world.options.timeout = std::chrono::seconds(1);
    std::barrier both_there(2);
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 2U}) {
        threads.emplace_back([&, rank] {
            both_there.arrive_and_wait();
            EXPECT_THAT(
                error_of([&] { (void)world.join(rank); }),
                is_error(Errc::deadline_exceeded, "these have not come within 1.0 s: 1, 3"));
        });
    }
}

// Rank 2 has told its address and died. Two ranks find its socket closed or wait for its call; the
// others hear of it from them.
TEST(Forming, DeadRankIsNamedOnAllOthersAtOnce) {
    const World world(5);
    const std::string place = "pg/test/0.0/";
    ASSERT_EQ(world.store->add(place + "incarnation/2", 1), 1);
    const std::string closed = "127.0.0.1:" + std::to_string(testing::unused_port());
    const Context late = testing::context_of_rank(2, world.size, world.store);
    MemberStore(place + "1", world.store, net::group_key(late, "regroup store"))
        .set("addr/2", closed + " 4711 0");
    std::vector<std::jthread> threads;
    for (const std::uint32_t rank : {0U, 1U, 3U, 4U}) {
        threads.emplace_back([&, rank] {
            Context context = testing::context_of_rank(rank, world.size, world.store);
            context.cpu_transport = "tcp";
            const auto start = TestClock::now();
            // Ranks without a connection to it may form the group before they hear of it.
            EXPECT_THAT(error_of([&] {
                            ProcessGroup::create("cpu", context, world.options)->barrier().wait();
                        }),
                        is_error(Errc::disconnected, "rank 2 (127.0.0.1:"))
                << "rank " << rank;
            EXPECT_LT(TestClock::now() - start, kAtOnce);
        });
    }
}

struct Disagreement {
    const char* name;
    std::function<Work(ProcessGroup&, std::vector<double>&)> call;
    const char* first;  // Words of rank 0's call, and of the others'.
    const char* second;
};

TEST(Disagreements, DifferentCallsAreRefusedOnAllRanksAndNamed) {
    using Values = std::vector<double>;
    const auto sum = [](ProcessGroup& group, Values& values, std::size_t count) {
        return group.all_reduce(std::span(values).first(count), ReduceOp::sum);
    };
    const std::vector<Disagreement> disagreements = {
        {"count", [&](auto& g, Values& v) { return sum(g, v, g.rank() == 0 ? 10 : 11); },
         "10 x float64", "11 x float64"},
        {"algorithm", [&](auto& g, Values& v) { return sum(g, v, g.rank() == 0 ? 10 : 100000); },
         "10 x float64", "100000 x float64"},
        {"reduction",
         [&](auto& g, Values& v) {
             return g.all_reduce(std::span(v), g.rank() == 0 ? ReduceOp::min : ReduceOp::max);
         },
         "(min", "(max"},
        {"dtype",
         [&](auto& g, Values& v) {
             const DType dtype = g.rank() == 0 ? DType::int64 : DType::float64;
             return g.all_reduce({v.data(), v.size(), dtype}, ReduceOp::sum);
         },
         "int64", "float64"},
        {"root",
         [&](auto& g, Values& v) { return g.broadcast(std::span(v), g.rank() == 0 ? 0 : 1); },
         "root 0", "root 1"},
        {"operation",
         [&](auto& g, Values& v) { return g.rank() == 0 ? g.barrier() : sum(g, v, 10); }, "barrier",
         "all_reduce"},
    };
    for (const std::uint32_t world_size : {2U, 3U, 5U, 7U}) {
        for (const Disagreement& disagreement : disagreements) {
            run_ranks(World(world_size), [&](ProcessGroup& group) {
                SCOPED_TRACE(std::string(disagreement.name) + " in a world of " +
                             std::to_string(world_size));
                std::vector<double> values(100000);
                auto error = error_of(disagreement.call(group, values));
                if (!error) {
                    // A broadcast's root may be through before the others object.
                    error = error_of(group.barrier());
                }
                EXPECT_THAT(error, is_error(Errc::invalid_argument, disagreement.first,
                                            disagreement.second, "rank 0 (127.0.0.1:"))
                    << "rank " << group.rank();
            });
        }
    }
}

// Each rank in turn makes the different call: its partners depend on the algorithm.
TEST(Disagreements, DifferentCallOfAnyRankIsFound) {
    for (const std::uint32_t world_size : {3U, 4U, 7U, 8U}) {
        for (std::uint32_t odd = 0; odd < world_size; ++odd) {
            run_ranks(World(world_size), [&](ProcessGroup& group) {
                std::vector<double> values(group.rank() == odd ? 10 : 10000);
                EXPECT_THAT(error_of(group.all_reduce(std::span(values), ReduceOp::sum)),
                            is_error(Errc::invalid_argument, "10 x float64", "10000 x float64"));
            });
        }
    }
}

void expect_skipper_named(std::uint32_t world_size, std::uint32_t skipper) {
    run_ranks(World(world_size), [&](ProcessGroup& group) {
        SCOPED_TRACE("rank " + std::to_string(skipper) + " of " + std::to_string(world_size) +
                     " skips a call");
        const auto error = error_of([&] {
            std::vector<double> values(10);
            if (group.rank() != skipper) {
                group.all_reduce(std::span(values), ReduceOp::sum).wait();
            }
            group.broadcast(std::span(values), 0).wait();
            group.barrier().wait();
            group.broadcast(std::span(values), 1).wait();
        });
        EXPECT_THAT(error, is_error(Errc::invalid_argument, "the ranks do not agree",
                                    "rank " + std::to_string(skipper) + " ("))
            << "rank " << group.rank();
    });
}

// The ranks that wait for each other may have exchanged nothing.
TEST(Disagreements, RankThatSkipsACallIsFoundInEveryWorldSize) {
    std::vector<std::jthread> worlds;
    for (const std::uint32_t world_size : {2U, 3U, 4U, 5U, 6U, 7U}) {
        for (const std::uint32_t skipper : {0U, 1U, world_size - 1}) {
            worlds.emplace_back(expect_skipper_named, world_size, skipper);
        }
    }
}

TEST(Leaving, RankThatLeavesInOrderDisturbsNoBusyRank) {
    const World world(5);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1 || group.rank() == 3) {
            return;
        }
        // Ranks 0, 2 and 4 go on sending messages, while the ring is broken in two places.
        std::vector<float> values(1000, static_cast<float>(group.rank()));
        for (int i = 0; i < 50; ++i) {
            if (group.rank() == 0) {
                group.send(std::span(values), 2).wait();
                group.recv(std::span(values), 4).wait();
            } else if (group.rank() == 2) {
                group.recv(std::span(values), 0).wait();
                group.send(std::span(values), 4).wait();
            } else {
                group.recv(std::span(values), 2).wait();
                group.send(std::span(values), 0).wait();
            }
        }
    });
}

TEST(Leaving, LeavingRankEndsItsOperationsInFlight) {
    const World world(2);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 0) {
            Work pending;
            {
                const auto other =
                    ProcessGroup::create("cpu", testing::context_of_rank(0, 2, world.store),
                                         {.timeout = testing::kPatience, .name = "second"});
                static float value = 0;
                pending = other->recv(std::span(&value, 1), 1);
            }
            EXPECT_THAT(error_of(pending), is_error(Errc::fenced));
        } else {
            const auto other =
                ProcessGroup::create("cpu", testing::context_of_rank(1, 2, world.store),
                                     {.timeout = testing::kPatience, .name = "second"});
            EXPECT_THAT(error_of(other->barrier()), is_error(Errc::disconnected));
        }
        group.barrier().wait();  // The first group is another matter.
    });
}

TEST(Forming, RepeatedFormingUnderOneNameMakesNewGroups) {
    const World world(3);
    for (int i = 0; i < 5; ++i) {
        run_ranks(world, [](ProcessGroup& group) {
            std::int64_t value = 1;
            group.all_reduce(std::span(&value, 1), ReduceOp::sum).wait();
            EXPECT_EQ(value, 3);
        });
    }
}

TEST(Backends, UnknownBackendsAreRefusedByName) {
    for (const char* const name : {"mpi", "carrier-pigeon"}) {
        EXPECT_THAT(error_of([&] { (void)ProcessGroup::create(name, Context()); }),
                    is_error(Errc::invalid_argument, name));
    }
    EXPECT_EQ(ProcessGroup::create("gloo", Context())->backend(), "cpu");
}

}  // namespace
}  // namespace regroup
