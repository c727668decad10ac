// SPDX-License-Identifier: Apache-2.0
// The end of groups over NCCL: every wait ends, the error names the cause, and communicators are
// aborted by NCCL's rules.
#include <atomic>
#include <barrier>
#include <future>
#include <pthread.h>

#include "tests/conformance/nccl_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::NcclWorld;
using testing::view;

// "Well under a second", on a busy machine.
constexpr std::chrono::seconds kAtOnce{15};

using Clock = std::chrono::steady_clock;

/// No communicator is freed before all that end with it have been told to stop, none is destroyed
/// after that, and none is used.
void expect_proper_abort(const testing::StandIn& stand_in, std::size_t communicators) {
    EXPECT_EQ(stand_in.events("abort_flag").size(), communicators) << stand_in.journal();
    EXPECT_EQ(stand_in.events("free").size(), communicators);
    EXPECT_TRUE(stand_in.events("destroy").empty());
}

TEST(NcclFailures, AsynchronousErrorEndsOperationsInFlightAndTheGroup) {
    NcclWorld world(1);
    world.stand_in.set_faults("async_error_at=3");
    run_ranks(world, [](ProcessGroup& group) {
        std::vector<float> values(10, 1);
        for (int i = 0; i < 2; ++i) {
            group.all_reduce(view(values, group), ReduceOp::sum).wait();
        }
        const Work third = group.all_reduce(view(values, group), ReduceOp::avg);
        const Work fourth = group.broadcast(view(values, group), 0);
        EXPECT_THAT(error_of(third),
                    is_error(Errc::disconnected,
                             "all_reduce #3 (avg, 10 x float32) on cuda:0 in group "
                             "\"test\": NCCL: remote process"));
        EXPECT_THAT(error_of(fourth),
                    is_error("broadcast #4", "the group has ended with all_reduce #3"));
        EXPECT_THAT(error_of(group.barrier()), is_error(Errc::disconnected));
    });
    expect_proper_abort(world.stand_in, 1);
}

TEST(NcclFailures, FailureOfOneRankReachesAllOthersByName) {
    NcclWorld world(4);
    world.stand_in.set_faults("async_error_at=2 rank=1");
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();  // A failure may overtake the end of the barrier above.
        const auto start = Clock::now();
        const auto error = error_of(group.barrier());
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::disconnected);
        if (group.rank() != 1) {
            EXPECT_THAT(error->what(), AllOf(HasSubstr("barrier #2 on cuda:"),
                                             HasSubstr("rank 1 has ended the group: barrier #2: "
                                                       "NCCL: remote process")));
        }
        EXPECT_LT(Clock::now() - start, kAtOnce);
    });
    expect_proper_abort(world.stand_in, 4);
}

TEST(NcclFailures, AbortFromAnotherThreadReleasesWaitingThreads) {
    NcclWorld world(3);
    std::atomic<int> waiting = 0;
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() != 2) {
            ++waiting;
            EXPECT_THAT(error_of(group.barrier()),
                        is_error(Errc::disconnected,
                                 "rank 2 has given the group up: aborted: enough of it"));
            return;
        }
        std::vector<float> value(1);
        const Work blocked = group.recv(view(value, group), 0);
        const std::jthread aborter([&] {
            while (waiting < 2) {
                std::this_thread::yield();
            }
            group.abort("enough of it");
            group.abort("again");
        });
        const auto start = Clock::now();
        EXPECT_THAT(error_of(blocked), is_error(Errc::fenced, "recv #1 from rank 0", "enough"));
        EXPECT_LT(Clock::now() - start, kAtOnce);
        EXPECT_THAT(error_of([&] { (void)group.new_group({0}, "late"); }), is_error(Errc::fenced));
    });
    expect_proper_abort(world.stand_in, 3);
}

TEST(NcclFailures, AbortTellsAllCommunicatorsToStopBeforeAnyIsFreed) {
    NcclWorld world(1);
    run_ranks(world, [](ProcessGroup& group) {
        const auto first = group.new_group({0}, "first");
        const auto second = first->new_group({0}, "second");
        second->barrier().wait();
        group.abort("test");
        for (ProcessGroup* const each : {&group, first.get(), second.get()}) {
            const auto error = error_of([&] {
                while (true) {
                    each->barrier().wait();
                }
            });
            EXPECT_THAT(error, is_error(Errc::fenced));
        }
    });
    expect_proper_abort(world.stand_in, 3);
    const std::string journal = world.stand_in.journal();
    EXPECT_LT(journal.rfind("abort_flag"), journal.find("free"));
}

TEST(NcclFailures, AbortedSubGroupLeavesTheParentIntact) {
    NcclWorld world(3);
    run_ranks(world, [](ProcessGroup& group) {
        const auto pair = group.new_group({0, 2}, "pair");
        if (group.rank() == 0) {
            pair->abort("not this one");
        } else if (group.rank() == 2) {
            EXPECT_THAT(
                error_of([&] { pair->barrier().wait(); }),
                is_error(Errc::disconnected, "in group \"pair\"", "rank 0 has given the group up"));
        }
        std::vector<std::int32_t> one(1, 1);
        group.all_reduce(view(one, group), ReduceOp::sum).wait();
        EXPECT_EQ(one[0], 3);
    });
    // Two of the pair, and the child of rank 1 alone.
    EXPECT_EQ(world.stand_in.events("abort_flag").size(), 3U);
    EXPECT_EQ(world.stand_in.events("destroy").size(), 3U);
}

TEST(NcclFailures, AbortDuringASplitReleasesARankOutsideTheChild) {
    NcclWorld world(2);
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();
        world.stand_in.set_faults("init_never");
        if (group.rank() == 0) {
            EXPECT_THAT(error_of([&] { (void)group.new_group({0}, "other"); }),
                        is_error(Errc::disconnected, "rank 1 has given the group up"));
            return;
        }
        const std::jthread aborter([&] {
            while (world.stand_in.events("split").empty()) {
                std::this_thread::yield();
            }
            group.abort("enough of it");
        });
        EXPECT_THAT(error_of([&] { (void)group.new_group({0}, "other"); }),
                    is_error(Errc::fenced, "new_group \"other\"", "enough"));
    });
}

TEST(NcclFailures, SystemErrorIsNoLossOfAPeer) {
    NcclWorld world(2);
    world.stand_in.set_faults("system_error_at=2 rank=0");
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();
        EXPECT_THAT(error_of(group.barrier()), is_error(Errc::system, "barrier #2 on cuda:"));
    });
}

TEST(NcclFailures, FailureOfTheWatchdogIsReportedWithItsReason) {
    NcclWorld world(2);
    testing::HostRuntime broken;
    broken.refuse_threads();
    const auto failure_of = [&](std::uint32_t rank) {
        testing::HostRuntime& runtime = rank == 0 ? broken : world.runtime;
        const auto error = error_of([&] {
            const auto group = nccl::form_group_on({world.stand_in.api(), runtime},
                                                   testing::context_of_rank(rank, 2, world.store),
                                                   world.options, world.device_of(rank), {});
            // The first ones may end before the watchdog begins.
            const auto limit = Clock::now() + testing::kPatience;
            while (Clock::now() < limit) {
                group->barrier().wait();
            }
        });
        ASSERT_TRUE(error) << rank;
        // The other rank may still be connecting, and then hears only that NCCL failed.
        if (rank == 0) {
            EXPECT_THAT(error->what(), HasSubstr("refuses threads"));
        }
    };
    const std::jthread other([&] { failure_of(1); });
    failure_of(0);
}

TEST(NcclFailures, FailedSplitEndsTheChild) {
    NcclWorld world(1);
    world.stand_in.set_faults("split_error");
    run_ranks(world, [](ProcessGroup& group) {
        EXPECT_THAT(error_of([&] { (void)group.new_group({0}, "child"); }),
                    is_error("new_group \"child\""));
    });
    EXPECT_EQ(world.stand_in.events("child").size(), 1U);
    expect_proper_abort(world.stand_in, 2);
}

/// `let_go` must return in time while the stand-in frees nothing, and the stand-in frees everything
/// afterwards.
void expect_let_go_in_time(NcclWorld& world, const std::function<void()>& let_go) {
    world.stand_in.set_faults("graph_alive");
    auto ended = std::async(std::launch::async, let_go);
    EXPECT_EQ(ended.wait_for(kAtOnce), std::future_status::ready);
    EXPECT_TRUE(world.stand_in.events("free").empty());
    world.stand_in.set_faults("");
    ended.wait();
    const auto deadline = Clock::now() + testing::kPatience;
    while (world.stand_in.events("free").empty() && Clock::now() < deadline) {
        std::this_thread::yield();
    }
    EXPECT_TRUE(world.runtime.await_streams_gone(deadline));
    expect_proper_abort(world.stand_in, world.stand_in.events("init").size());
}

// As long as a CUDA graph holds operations, NCCL's finalize and abort do not return.
TEST(NcclFailures, LeavingEndsAtTheLimitIfAGraphHoldsTheCommunicator) {
    NcclWorld world(1);
    world.freeing_max = std::chrono::milliseconds(100);
    std::unique_ptr<ProcessGroup> group = world.join(0);
    group->barrier().wait();
    expect_let_go_in_time(world, [&] { group.reset(); });
}

TEST(NcclFailures, AbortEndsAtTheLimitIfAGraphHoldsTheCommunicator) {
    NcclWorld world(1);
    world.freeing_max = std::chrono::milliseconds(100);
    std::unique_ptr<ProcessGroup> group = world.join(0);
    expect_let_go_in_time(world, [&] {
        group->abort("enough of it");
        EXPECT_THAT(error_of(group->barrier()), is_error(Errc::fenced));
        group.reset();
    });
}

TEST(NcclFailures, FailureOfASubGroupThatAGraphHoldsLeavesTheParentIntact) {
    NcclWorld world(2);
    world.freeing_max = std::chrono::milliseconds(100);
    std::barrier given_up(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        const auto pair = group.new_group({0, 1}, "pair");
        pair->barrier().wait();
        given_up.arrive_and_wait();
        world.stand_in.set_faults("graph_alive");
        pair->abort("not this one");
        EXPECT_TRUE(error_of([&] {
            while (true) {
                pair->barrier().wait();
            }
        }));
        for (int i = 0; i < 10; ++i) {
            std::vector<std::int32_t> one(1, 1);
            group.all_reduce(view(one, group), ReduceOp::sum).wait();
            EXPECT_EQ(one[0], 2);
        }
        given_up.arrive_and_wait();
        world.stand_in.set_faults("");
    });
    EXPECT_TRUE(world.runtime.await_streams_gone(Clock::now() + testing::kPatience));
    EXPECT_EQ(world.stand_in.events("destroy").size(), 2U);
}

/// No thread can be started while it lives: none has so much memory for its stack.
class NoThreads {
   public:
    NoThreads() {
        ::pthread_attr_init(&huge_);
        ::pthread_attr_setstacksize(&huge_, std::size_t{1} << 47U);
        ::pthread_getattr_default_np(&before_);
        ::pthread_setattr_default_np(&huge_);
    }
    ~NoThreads() {
        ::pthread_setattr_default_np(&before_);
        ::pthread_attr_destroy(&before_);
        ::pthread_attr_destroy(&huge_);
    }
    NoThreads(const NoThreads&) = delete;
    NoThreads& operator=(const NoThreads&) = delete;

   private:
    pthread_attr_t huge_{};
    pthread_attr_t before_{};
};

// Calls of a blocking communicator that wait for other ranks have a thread of their own.
TEST(NcclFailures, GroupLeavesWhereNoThreadCanBeStarted) {
    NcclWorld world(1);
    world.blocking = true;
    std::unique_ptr<ProcessGroup> group = world.join(0);
    group->barrier().wait();
    {
        const NoThreads no_threads;
        group.reset();
    }
    expect_proper_abort(world.stand_in, 1);
}

TEST(NcclFailures, PeerThatLeavesWithOperationsInFlightIsSeenGone) {
    NcclWorld world(2);
    std::vector<float> value(1);
    std::barrier all_connected(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        all_connected.arrive_and_wait();
        if (group.rank() == 0) {
            (void)group.recv(view(value, group), 1);
            return;
        }
        EXPECT_THAT(error_of(group.all_reduce(view(value, group), ReduceOp::sum)),
                    is_error(Errc::disconnected, "rank 0 has given the group up"));
    });
}

TEST(NcclFailures, PeerThatLeftInOrderIsNamedByRanksThatNeedIt) {
    NcclWorld world(3);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
            return;
        }
        EXPECT_THAT(error_of([&] { group.barrier().wait(); }),
                    is_error(Errc::disconnected, "rank 1 has left the group"));
    });
}

TEST(NcclFailures, PeerThatLeftIsNamedToRanksThatBeginToConnect) {
    NcclWorld world(3);
    world.stand_in.set_faults("launch_never_at=2");
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
            return;
        }
        EXPECT_THAT(error_of([&] { group.barrier().wait(); }),
                    is_error(Errc::disconnected, "barrier #2", "rank 1 has left the group"));
    });
}

TEST(NcclFailures, PeerThatLeftBeforeASplitIsNamed) {
    NcclWorld world(3);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
            return;
        }
        EXPECT_THAT(error_of([&] { (void)group.new_group({0, 2}, "rest"); }),
                    is_error(Errc::disconnected, "rank 1"));
    });
}

TEST(NcclFailures, LeavingInOrderFinalizesAndDestroys) {
    NcclWorld world(2);
    run_ranks(world, [](ProcessGroup& group) { group.barrier().wait(); });
    EXPECT_EQ(world.stand_in.events("finalize").size(), 2U);
    EXPECT_EQ(world.stand_in.events("destroy").size(), 2U);
    EXPECT_TRUE(world.stand_in.events("abort").empty());
}

// From 2.31 on ncclCommDestroy waits for others without a limit.
TEST(NcclFailures, LeavingANewerLibraryNeverDestroys) {
    NcclWorld world(2);
    world.stand_in.api().version = 23100;
    run_ranks(world, [](ProcessGroup& group) { group.barrier().wait(); });
    EXPECT_EQ(world.stand_in.events("finalize").size(), 2U);
    EXPECT_TRUE(world.stand_in.events("destroy").empty());
}

}  // namespace
}  // namespace regroup
