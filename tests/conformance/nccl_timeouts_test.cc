// SPDX-License-Identifier: Apache-2.0
// Operations over NCCL whose time is up: the error names the ranks that never came.
#include <future>
#include <latch>

#include "tests/conformance/nccl_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::NcclWorld;
using testing::view;

constexpr OperationOptions kSoon{.timeout = std::chrono::seconds(1)};

/// Ranks that do not come to an operation wait here until the others have its error.
class Elsewhere {
   public:
    void stay() const { is_over_.wait_for(testing::kPatience); }
    void end() { over_.set_value(); }

   private:
    std::promise<void> over_;
    const std::shared_future<void> is_over_ = over_.get_future().share();
};

void expect_timeout(const std::optional<Error>& error, const std::string& operation,
                    const std::string& cause) {
    EXPECT_THAT(error, is_error(Errc::deadline_exceeded, operation, cause));
}

TEST(NcclTimeouts, ErrorNamesTheRanksThatHaveNotJoinedIn) {
    NcclWorld world(4);
    Elsewhere elsewhere;
    std::latch called(1);
    std::latch failed(2);
    std::vector<double> values(3);  // outlives the group: the GPU may still be reading it
    std::vector<double> others(3);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1 || group.rank() == 2) {
            elsewhere.stay();
            return;
        }
        // Messages have numbers of their own.
        if (group.rank() == 3) {
            group.send(view(others, group), 0).wait();
            const Work work = group.all_reduce(view(others, group), ReduceOp::max);
            called.count_down();
            expect_timeout(error_of(work), "all_reduce #2 (max, 3 x float64) on cuda:3",
                           "rank 0 has ended the group: all_reduce #2 (max, 3 x float64): rank 1, "
                           "rank 2 have not joined in within 1.0 s");
        } else {
            group.recv(view(values, group), 3).wait();
            called.wait();
            expect_timeout(error_of(group.all_reduce(view(values, group), ReduceOp::max, kSoon)),
                           "all_reduce #2 (max, 3 x float64) on cuda:0 in group \"test\": ",
                           "rank 1, rank 2 have not joined in within 1.0 s");
        }
        failed.arrive_and_wait();
        if (group.rank() == 0) {
            elsewhere.end();
        }
    });
    EXPECT_GE(world.stand_in.events("abort_flag").size(), 1U);
}

TEST(NcclTimeouts, NoRankIsNamedIfAllHaveCalledTheOperation) {
    NcclWorld world(2);
    world.stand_in.set_faults("op_never_at=2 rank=1");
    std::latch called(1);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
            const Work work = group.barrier();
            called.count_down();
            expect_timeout(error_of(work), "barrier #2", "rank 0 has ended the group");
            return;
        }
        called.wait();
        expect_timeout(error_of(group.barrier(kSoon)), "barrier #2",
                       "not complete within 1.0 s: all ranks have called it");
    });
}

TEST(NcclTimeouts, OperationThatCudaRefusedIsNotComparedWithThoseOfOtherRanks) {
    NcclWorld world(2);
    world.stand_in.set_faults("op_never_at=2 rank=1");
    std::latch called(1);
    std::vector<float> values(3);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
            const Work work = group.barrier();
            called.count_down();
            EXPECT_TRUE(error_of(work));
            return;
        }
        called.wait();
        world.runtime.refuse_one_question(0);
        EXPECT_THAT(error_of([&] { (void)group.all_reduce(view(values, group), ReduceOp::sum); }),
                    is_error("the test refuses to answer"));
        expect_timeout(error_of(group.barrier(kSoon)), "barrier #2", "all ranks have called it");
    });
}

TEST(NcclTimeouts, RanksThatCallDifferentOperationsDoNotAgree) {
    NcclWorld world(2);
    world.stand_in.set_faults("op_never_at=2 rank=1");
    std::latch called(1);
    std::vector<float> values(3);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        Work work;
        if (group.rank() == 1) {
            work = group.barrier();
            called.count_down();
        } else {
            called.wait();
            work = group.all_reduce(view(values, group), ReduceOp::sum, kSoon);
        }
        EXPECT_THAT(error_of(work), is_error(Errc::invalid_argument, "the ranks do not agree",
                                             "barrier #2", "all_reduce #2 (sum, 3 x float32)"));
    });
}

TEST(NcclTimeouts, RankThatNcclWaitsForBeforeALaunchIsNamed) {
    NcclWorld world(3);
    world.stand_in.set_faults("launch_never_at=2 rank=0");
    Elsewhere elsewhere;
    std::latch called(1);
    run_ranks(world, [&](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == 1) {
            elsewhere.stay();
        } else if (group.rank() == 2) {
            const Work work = group.barrier();
            called.count_down();
            EXPECT_TRUE(error_of(work));
        } else {
            called.wait();
            expect_timeout(error_of(group.barrier(kSoon)), "barrier #2",
                           "rank 1 has not joined in within 1.0 s");
            elsewhere.end();
        }
    });
}

TEST(NcclTimeouts, SubGroupNamesItsOwnRanks) {
    NcclWorld world(3);
    Elsewhere elsewhere;
    run_ranks(world, [&](ProcessGroup& group) {
        const auto pair = group.new_group({2, 0}, "pair");
        if (group.rank() != 0) {
            elsewhere.stay();
            return;
        }
        expect_timeout(error_of([&] { pair->barrier(kSoon).wait(); }),
                       "barrier #1 on cuda:0 in group \"pair\"",
                       "rank 0 (world rank 2) has not joined in within 1.0 s");
        elsewhere.end();
    });
}

TEST(NcclTimeouts, RankThatHasLeftASubGroupIsNamed) {
    NcclWorld world(2);
    Elsewhere elsewhere;
    std::latch left(1);
    run_ranks(world, [&](ProcessGroup& group) {
        auto pair = group.new_group({0, 1}, "pair");
        if (group.rank() == 1) {
            pair.reset();
            left.count_down();
            elsewhere.stay();
            return;
        }
        left.wait();
        expect_timeout(error_of([&] { pair->barrier(kSoon).wait(); }), "barrier #1",
                       "rank 1 has not joined in within 1.0 s");
        elsewhere.end();
    });
}

TEST(NcclTimeouts, SplitNamesTheRankThatNeverCallsIt) {
    NcclWorld world(2);
    world.options.timeout = std::chrono::seconds(5);
    world.meeting_limit = testing::kPatience;
    Elsewhere elsewhere;
    run_ranks(world, [&](ProcessGroup& group) {
        if (group.rank() == 1) {
            elsewhere.stay();
            return;
        }
        expect_timeout(error_of([&] { (void)group.new_group({0, 1}, "both"); }),
                       "new_group \"both\"", "rank 1 has not joined in within 5.0 s");
        elsewhere.end();
    });
}

}  // namespace
}  // namespace regroup
