// SPDX-License-Identifier: Apache-2.0
// Sub-groups and memory, which all ranks of a group over NCCL make together.
#include <barrier>
#include <numeric>

#include "tests/conformance/nccl_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/base/round_scope.h"

namespace regroup {
namespace {

using testing::NcclWorld;
using testing::run_ranks_on_gpus;
using testing::view;

TEST(NcclSubGroups, SubGroupsServeTheirMembersAlone) {
    NcclWorld world(5);
    run_ranks(world, [](ProcessGroup& group) {
        const auto odd = group.new_group({3, 1}, "odd");
        const auto rest = group.new_group({0, 2, 4}, "rest");
        const bool is_odd = group.rank() % 2 == 1;
        ProcessGroup& own = is_odd ? *odd : *rest;
        EXPECT_EQ(own.world_size(), is_odd ? 2U : 3U);
        EXPECT_EQ(own.rank(), is_odd ? (group.rank() == 3 ? 0U : 1U) : group.rank() / 2);
        std::vector<std::int32_t> sum(3, static_cast<std::int32_t>(group.rank()));
        own.all_reduce(view(sum, group), ReduceOp::sum).wait();
        EXPECT_EQ(sum[0], is_odd ? 4 : 6);

        ProcessGroup& other = is_odd ? *rest : *odd;
        EXPECT_EQ(other.rank(), ProcessGroup::kNotAMember);
        EXPECT_EQ(other.world_size(), is_odd ? 3U : 2U);
        EXPECT_THAT(
            error_of([&] { (void)other.barrier(); }),
            is_error(Errc::invalid_argument, is_odd ? "0, 2, 4" : "3, 1", "is not in group"));

        if (!is_odd) {  // Groups of groups.
            const auto pair = rest->new_group({2, 0}, "pair");
            if (group.rank() != 2) {
                std::vector<std::int32_t> value(1, 1);
                pair->all_reduce(view(value, group), ReduceOp::sum).wait();
                EXPECT_EQ(value[0], 2);
                EXPECT_EQ(pair->rank(), group.rank() == 4 ? 0U : 1U);
            }
        }
        group.barrier().wait();
    });
    EXPECT_EQ(world.stand_in.events("split").size(), 5U + 5U + 3U);
    // Of the ranks outside "odd", "rest" and "pair", each has had a child alone.
    EXPECT_EQ(world.stand_in.events("abort_flag").size(), 3U + 2U + 1U);
    EXPECT_EQ(world.stand_in.events("finalize").size(), world.stand_in.events("destroy").size());
}

TEST(NcclSubGroups, SubGroupsOutliveTheirParent) {
    NcclWorld world(2);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            auto parent = world.join(rank);
            const auto child = parent->new_group({1, 0}, "child");
            parent.reset();
            std::vector<float> value(1, 1);
            child->all_reduce(view(value, *child), ReduceOp::sum).wait();
            EXPECT_EQ(value[0], 2);
        });
    }
    threads.clear();
    EXPECT_TRUE(world.stand_in.events("VIOLATION").empty()) << world.stand_in.journal();
}

TEST(NcclSubGroups, EndOfTheRoundEndsSubGroupsThatHaveOutlivedTheirParent) {
    NcclWorld world(2);
    std::barrier<> both(2);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 2; ++rank) {
        threads.emplace_back([&, rank] {
            const Context context = testing::context_of_rank(rank, 2, world.store);
            auto parent = world.join(context);
            const auto child = parent->new_group({1, 0}, "child");
            parent.reset();
            child->barrier().wait();
            both.arrive_and_wait();
            ContextScope::of(context)->interrupt("the round is over");
            const auto error = error_of([&] { child->barrier().wait(); });
            EXPECT_THAT(error ? error->what() : "no error", HasSubstr("the round is over"));
            both.arrive_and_wait();  // Neither leaves before both have seen it.
        });
    }
    threads.clear();
}

TEST(NcclSubGroups, RanksThatNameOtherMembersAreRefused) {
    using Ranks = std::vector<std::uint32_t>;
    run_ranks_on_gpus(4, [](ProcessGroup& group) {
        const std::uint32_t rank = group.rank();
        for (const Ranks& ranks :
             {rank < 2 ? Ranks{0, 1} : Ranks{2, 3}, rank == 0 ? Ranks{0, 1} : Ranks{0, 1, 2},
              rank == 3 ? Ranks{1, 0} : Ranks{0, 1}}) {
            EXPECT_THAT(error_of([&] { (void)group.new_group(ranks, "torn"); }),
                        is_error(Errc::invalid_argument,
                                 "new_group \"torn\": the ranks do not agree: rank ",
                                 "calls new_group with another name or other ranks"));
        }
        const auto pair = group.new_group({0, 1}, "pair");  // The parent goes on.
        if (rank < 2) {
            pair->barrier().wait();
        }
    });
}

TEST(NcclSubGroups, RankThatCannotSetUpItsPartFailsNewGroupOnAllRanks) {
    NcclWorld world(3);
    std::barrier all(3);
    run_ranks(world, [&](ProcessGroup& group) {
        all.arrive_and_wait();
        world.runtime.fill(1);
        EXPECT_THAT(error_of([&] { (void)group.new_group({0, 1}, "pair"); }),
                    is_error(Errc::system, group.rank() == 1
                                               ? "new_group \"pair\": cuda:1 has not even"
                                               : "new_group \"pair\": rank 1 could not set up"));
        all.arrive_and_wait();
        world.runtime.fill(-1);
        group.new_group({0, 1, 2}, "next")->barrier().wait();
    });
}

TEST(NcclSubGroups, SplitThatIsNotAsAskedForEndsTheGroup) {
    NcclWorld world(2);
    world.stand_in.set_faults("split_wrong");
    run_ranks(world, [&](ProcessGroup& group) {
        EXPECT_THAT(error_of([&] { group.new_group({0, 1}, "pair")->barrier().wait(); }),
                    is_error(Errc::system, "NCCL has made a group of other ranks"));
    });
}

TEST(NcclSubGroups, InvalidRanksAreRefused) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        for (const auto& [ranks, words] :
             std::vector<std::pair<std::vector<std::uint32_t>, const char*>>{
                 {{0, 2}, "rank 2 does not exist"}, {{1, 1}, "listed twice"}, {{}, "no ranks"}}) {
            EXPECT_THAT(error_of([&] { (void)group.new_group(ranks, "wrong"); }),
                        is_error(Errc::invalid_argument, words, "\"wrong\""));
        }
        group.barrier().wait();
    });
}

TEST(NcclMemory, MemoryIsZeroedAlignedRegisteredAndOutlivesTheGroup) {
    NcclWorld world(2);
    std::vector<Buffer> kept(2);
    run_ranks(world, [&](ProcessGroup& group) {
        Buffer buffer = group.allocate(10000);
        EXPECT_EQ(buffer.bytes, 10000U);
        EXPECT_EQ(buffer.device, group.device());
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 4096, 0U);
        auto* const values = static_cast<float*>(buffer.data);
        EXPECT_EQ(std::accumulate(values, values + 2500, 0.0F), 0);
        values[0] = 1;
        group.all_reduce({values, 2500, DType::float32, group.device()}, ReduceOp::sum).wait();
        EXPECT_EQ(values[0], 2);
        kept[group.rank()] = buffer;
        const Buffer dropped = group.allocate(1);
        EXPECT_EQ(group.allocate(0).data, nullptr);
    });
    EXPECT_EQ(static_cast<float*>(kept[0].data)[0], 2);
    EXPECT_EQ(world.stand_in.events("deregister").size(), 4U);
    kept.clear();
    EXPECT_EQ(world.stand_in.events("mem_free").size(), 4U);
    EXPECT_EQ(world.stand_in.events("VIOLATION"), std::vector<std::string>());
}

TEST(NcclMemory, RanksThatAskForOtherSizesAreRefused) {
    run_ranks_on_gpus(2, [](ProcessGroup& group) {
        const auto error =
            error_of([&] { (void)group.allocate(std::size_t{4096} * (group.rank() + 1)); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::invalid_argument);
        EXPECT_THAT(
            error->what(),
            HasSubstr(group.rank() == 0 ? "allocate: rank 1 asks for 8192 bytes, rank 0 for 4096"
                                        : "allocate: rank 0 asks for 4096 bytes, rank 1 for 8192"));
        EXPECT_EQ(group.allocate(4096).bytes, 4096U);
    });
}

TEST(NcclMemory, RankWithoutMemoryFailsAllocateOnAllRanks) {
    NcclWorld world(3);
    world.stand_in.api().mem_alloc = nullptr;
    std::barrier all(3);
    run_ranks(world, [&](ProcessGroup& group) {
        all.arrive_and_wait();
        world.runtime.fill(1);
        const auto error = error_of([&] { (void)group.allocate(1000); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::system);
        EXPECT_THAT(
            error->what(),
            HasSubstr(group.rank() == 1 ? "no 1000 bytes of GPU memory left"
                                        : "allocate: rank 1 could not allocate 1000 bytes"));
        all.arrive_and_wait();
        world.runtime.fill(-1);
        EXPECT_EQ(group.allocate(1000).bytes, 1000U);
    });
}

TEST(NcclMemory, DroppedMemoryIsKeptUntilItsOperationIsComplete) {
    NcclWorld world(2);
    std::barrier both(world.size);
    run_ranks(world, [&](ProcessGroup& group) {
        Buffer buffer = group.allocate(4096);
        Work work;
        if (group.rank() == 0) {
            work = group.all_reduce(
                {static_cast<float*>(buffer.data), 1024, DType::float32, group.device()},
                ReduceOp::sum);
            buffer = {};
            EXPECT_TRUE(world.stand_in.events("mem_free").empty());
        }
        both.arrive_and_wait();
        if (group.rank() == 1) {
            work = group.all_reduce(
                {static_cast<float*>(buffer.data), 1024, DType::float32, group.device()},
                ReduceOp::sum);
        }
        work.wait();
        both.arrive_and_wait();
        EXPECT_TRUE(world.stand_in.events("mem_free").empty());
        both.arrive_and_wait();
    });
    EXPECT_EQ(world.stand_in.events("mem_free").size(), 2U);
}

TEST(NcclMemory, MemoryComesFromCudaIfTheLibraryHasNoAllocator) {
    NcclWorld world(1);
    world.stand_in.api().mem_alloc = nullptr;
    run_ranks(world, [](ProcessGroup& group) {
        const Buffer buffer = group.allocate(100);
        EXPECT_EQ(reinterpret_cast<std::uintptr_t>(buffer.data) % 4096, 0U);
        EXPECT_EQ(static_cast<char*>(buffer.data)[99], 0);
    });
}

}  // namespace
}  // namespace regroup
