// SPDX-License-Identifier: Apache-2.0
// Groups of some of a group's ranks.
#include <atomic>
#include <barrier>
#include <mutex>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/errors.h"
#include "tests/support/matchers.h"

namespace regroup {
namespace {

using testing::World;

using Ranks = std::vector<std::uint32_t>;

double sum_over(ProcessGroup& group, double value) {
    group.all_reduce(std::span(&value, 1), ReduceOp::sum).wait();
    return value;
}

TEST(SubGroups, DisjointSubGroupsWorkAtTheSameTime) {
    run_ranks(5, [](ProcessGroup& world) {
        const auto even = world.new_group({0, 2, 4}, "even");
        const auto odd = world.new_group({1, 3}, "odd");
        ProcessGroup& mine = world.rank() % 2 == 0 ? *even : *odd;
        EXPECT_EQ(mine.rank(), world.rank() / 2);
        EXPECT_EQ(mine.world_size(), world.rank() % 2 == 0 ? 3U : 2U);
        EXPECT_EQ(mine.backend(), "cpu");
        for (int i = 0; i < 20; ++i) {
            EXPECT_EQ(sum_over(mine, world.rank()), world.rank() % 2 == 0 ? 6.0 : 4.0);
        }
        EXPECT_EQ(sum_over(world, 1.0), 5.0);
    });
}

TEST(SubGroups, RanksFollowTheOrderOfTheList) {
    run_ranks(4, [](ProcessGroup& world) {
        const auto group = world.new_group({3, 0, 2}, "turned");
        if (world.rank() == 1) {
            return;
        }
        const std::int32_t mine = static_cast<std::int32_t>(world.rank());
        std::vector<std::int32_t> all(3);
        group->all_gather(std::span(&mine, 1), std::span(all)).wait();
        EXPECT_EQ(all, (std::vector<std::int32_t>{3, 0, 2}));
        float word = 0;
        if (group->rank() == 0) {
            word = 7;
            group->send(std::span(&word, 1), 2, 5).wait();
        } else if (group->rank() == 2) {
            group->recv(std::span(&word, 1), 0, 5).wait();
            EXPECT_EQ(word, 7);
        }
    });
}

TEST(SubGroups, SubGroupsMayOverlapAndNest) {
    run_ranks(5, [](ProcessGroup& world) {
        const auto low = world.new_group({0, 1, 2}, "low");
        const auto high = world.new_group({2, 3, 4}, "high");
        std::unique_ptr<ProcessGroup> pair;
        if (world.rank() <= 2) {
            EXPECT_EQ(sum_over(*low, world.rank()), 3.0);
            pair = low->new_group({2, 1}, "pair");  // World ranks 2 and 1.
        }
        if (world.rank() >= 2) {
            EXPECT_EQ(sum_over(*high, world.rank()), 9.0);
        }
        if (world.rank() == 1 || world.rank() == 2) {
            EXPECT_EQ(pair->rank(), 2 - world.rank());
            EXPECT_EQ(sum_over(*pair, world.rank()), 3.0);
        }
        world.barrier().wait();
    });
}

TEST(SubGroups, SubGroupOfOneRankIsCompleteAtOnce) {
    run_ranks(2, [](ProcessGroup& world) {
        const auto alone = world.new_group({1}, "alone");
        if (world.rank() == 1) {
            EXPECT_EQ(alone->rank(), 0U);
            EXPECT_EQ(sum_over(*alone, 5.0), 5.0);
            const auto again = alone->new_group({0}, "again");
            EXPECT_EQ(sum_over(*again, 6.0), 6.0);
        }
        world.barrier().wait();
    });
}

TEST(SubGroups, RanksOutsideAreRefusedWithTheListOfMembers) {
    run_ranks(3, [](ProcessGroup& world) {
        const auto group = world.new_group({0, 2}, "ends");
        if (world.rank() != 1) {
            group->barrier().wait();
            return;
        }
        EXPECT_EQ(group->rank(), ProcessGroup::kNotAMember);
        EXPECT_EQ(group->world_size(), 2U);
        std::vector<float> v(4);
        const std::span<float> s(v);
        const std::vector<std::function<void()>> calls = {
            [&] { (void)group->all_reduce(s, ReduceOp::sum); },
            [&] { (void)group->reduce(s, ReduceOp::sum, 0); },
            [&] { (void)group->reduce_scatter(s, s.first(2), ReduceOp::sum); },
            [&] { (void)group->broadcast(s, 0); },
            [&] { (void)group->all_gather(s.first(2), s); },
            [&] { (void)group->gather(s.first(2), s, 0); },
            [&] { (void)group->scatter(s, s.first(2), 0); },
            [&] { (void)group->all_to_all(s.first(2), s.subspan(2)); },
            [&] { (void)group->barrier(); },
            [&] { (void)group->send(s, 0); },
            [&] { (void)group->recv(s, 0); },
            [&] { (void)group->new_group({0}, "x"); },
            [&] { (void)group->allocate(64); },
        };
        for (const auto& call : calls) {
            EXPECT_THAT(error_of(call),
                        is_error(Errc::invalid_argument,
                                 "rank 1 is not in group \"ends\", which consists of ranks 0, 2"));
        }
        group->abort("no effect");
    });
}

TEST(SubGroups, InvalidRanksAreRefused) {
    run_ranks(2, [](ProcessGroup& world) {
        for (const auto& [ranks, words] : {std::pair{Ranks{0, 2}, "rank 2 does not exist"},
                                           std::pair{Ranks{1, 1}, "rank 1 is listed twice"},
                                           std::pair{Ranks{}, "a group of no ranks"}}) {
            EXPECT_THAT(error_of([&, &list = ranks] { (void)world.new_group(list, "x"); }),
                        is_error(Errc::invalid_argument, words));
        }
        EXPECT_EQ(sum_over(world, 1.0), 2.0);
    });
}

TEST(SubGroups, SubGroupsOnWhichRanksDisagreeAreRefusedOnAll) {
    run_ranks(3, [](ProcessGroup& world) {
        const Ranks ranks = world.rank() == 1 ? Ranks{0, 1} : Ranks{1, 2};
        EXPECT_THAT(error_of([&] { (void)world.new_group(ranks, "x"); }),
                    is_error(Errc::invalid_argument, "new_group \"x\"", "do not agree"));
        EXPECT_EQ(sum_over(world, 1.0), 3.0);  // The parent still works.
    });
}

TEST(SubGroups, AbortOfAParentReachesSubGroupsOfAnyDepth) {
    std::barrier all_ready(3);
    run_ranks(3, [&](ProcessGroup& world) {
        const auto child = world.new_group({0, 1, 2}, "child");
        const auto grandchild = child->new_group({0, 1, 2}, "grandchild");
        grandchild->barrier().wait();
        all_ready.arrive_and_wait();
        float value = 0;
        const Work blocked = grandchild->recv(std::span(&value, 1), (world.rank() + 1) % 3);
        if (world.rank() == 0) {
            world.abort("enough of it");
        }
        EXPECT_THAT(error_of(blocked),
                    is_error(world.rank() == 0 ? Errc::fenced : Errc::disconnected,
                             "\"grandchild\"", "enough of it"));
        if (world.rank() == 0) {
            EXPECT_EQ(error_of(child->barrier())->code(), Errc::fenced);
            EXPECT_TRUE(error_of([&] { (void)world.new_group({0}, "late"); }));
        }
    });
}

TEST(SubGroups, SubGroupsOutliveTheirParent) {
    const World world(3);
    run_ranks(world, [](ProcessGroup&) {});
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < 3; ++rank) {
        threads.emplace_back([&, rank] {
            auto parent = world.join(rank);
            const auto child = parent->new_group({2, 1, 0}, "child");
            parent.reset();
            EXPECT_EQ(sum_over(*child, rank), 3.0);
        });
    }
}

TEST(SubGroups, LostPeerIsNamedByItsWorldRank) {
    run_ranks(4, [](ProcessGroup& world) {
        const auto group = world.new_group({1, 2, 3}, "tail");
        if (world.rank() == 0) {
            world.barrier().wait();
            return;
        }
        group->barrier().wait();
        world.barrier().wait();
        if (world.rank() == 3) {
            return;
        }
        EXPECT_THAT(error_of(group->barrier()),
                    is_error(Errc::disconnected, "rank 2 (world rank 3, 127.0.0.1:", "\"tail\""));
    });
}

TEST(SubGroups, SubGroupCanBeMadeManyTimesUnderOneName) {
    run_ranks(3, [](ProcessGroup& world) {
        for (int i = 0; i < 10; ++i) {
            const auto group = world.new_group({0, 1}, "again");
            if (world.rank() < 2) {
                EXPECT_EQ(sum_over(*group, 1.0), 2.0);
            }
        }
    });
}

}  // namespace
}  // namespace regroup
