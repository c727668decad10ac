// SPDX-License-Identifier: Apache-2.0
// Groups with several nodes, of which some have several ranks. The nodes are simulated on one
// machine: the ranks of one share memory, those of different ones do not.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <mutex>
#include <numeric>
#include <span>
#include <string>
#include <utility>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/matchers.h"
#include "worker_sdk/src/cpu/cpu_process_group.h"
#include "worker_sdk/src/group/owned_group.h"

namespace regroup {
namespace {

/// The number of ranks of each node.
using Nodes = std::vector<std::uint32_t>;

std::uint32_t size_of(const Nodes& nodes) {
    return std::accumulate(nodes.begin(), nodes.end(), 0U);
}

Context context_on(const Nodes& nodes, std::uint32_t rank, std::shared_ptr<Store> store) {
    Context context = testing::context_of_rank(rank, size_of(nodes), std::move(store));
    context.cpu_transport = "auto";
    context.group_world_size = static_cast<std::uint32_t>(nodes.size());
    context.local_rank = rank;
    while (context.local_rank >= nodes[context.group_rank]) {
        context.local_rank -= nodes[context.group_rank++];
    }
    context.local_world_size = nodes[context.group_rank];
    return context;
}

void run_nodes(const Nodes& nodes, const std::function<void(ProcessGroup&)>& body,
               std::chrono::milliseconds timeout = testing::kPatience) {
    const auto store = make_local_store(testing::kPatience);
    std::vector<std::jthread> threads;
    for (std::uint32_t rank = 0; rank < size_of(nodes); ++rank) {
        threads.emplace_back([&, rank] {
            try {
                const auto group = ProcessGroup::create("cpu", context_on(nodes, rank, store),
                                                        {.timeout = timeout, .name = "nodes"});
                body(*group);
            } catch (const std::exception& error) {
                ADD_FAILURE() << "rank " << rank << ": " << error.what();
            }
        });
    }
}

/// Sums of these depend on the order of addition.
float value_of(std::uint32_t rank, std::size_t index) {
    return std::sin(static_cast<float>(index % 1009) * 3.1F + static_cast<float>(rank) * 17) * 1e3F;
}

void fill(std::span<float> values, std::uint32_t rank) {
    for (std::size_t i = 0; i < values.size(); ++i) {
        values[i] = value_of(rank, i);
    }
}

/// Fails unless all ranks have called this with the same bytes.
class Agreement {
   public:
    void add(std::span<const float> values) {
        const std::lock_guard lock(mutex_);
        const auto bytes = std::as_bytes(values);
        if (first_.empty()) {
            first_.assign(bytes.begin(), bytes.end());
        }
        EXPECT_TRUE(std::ranges::equal(first_, bytes));
    }

   private:
    std::mutex mutex_;
    std::vector<std::byte> first_;  // guarded by mutex_
};

// Empty, one, on both sides of the small-message limit, several staging parts.
const std::vector<std::size_t> kCounts = {0, 1, 5, 1000, 4097, 65537, 700'001};

class SeveralNodes : public ::testing::TestWithParam<Nodes> {};

INSTANTIATE_TEST_SUITE_P(Layouts, SeveralNodes,
                         ::testing::Values(Nodes{2, 2}, Nodes{4, 4}, Nodes{3, 1}, Nodes{1, 2, 3},
                                           Nodes{2, 2, 2}),
                         [](const auto& info) {
                             std::string name = "of";
                             for (const std::uint32_t ranks : info.param) {
                                 name += std::to_string(ranks);
                             }
                             return name;
                         });

double sum_of_ranks(std::uint32_t world_size, std::size_t index) {
    double sum = 0;
    for (std::uint32_t rank = 0; rank < world_size; ++rank) {
        sum += value_of(rank, index);
    }
    return sum;
}

TEST_P(SeveralNodes, AllReduceHasTheSameBitsOnAllRanksAndInEveryRepetition) {
    for (const std::size_t count : kCounts) {
        Agreement agreement;
        run_nodes(GetParam(), [&](ProcessGroup& group) {
            for (int repetition = 0; repetition < 3; ++repetition) {
                std::vector<float> values(count);
                fill(values, group.rank());
                group.all_reduce(std::span(values), ReduceOp::sum).wait();
                agreement.add(values);
                for (std::size_t i = 0; i < count; i += 997) {
                    ASSERT_NEAR(values[i], sum_of_ranks(group.world_size(), i), 0.01)
                        << count << " values, " << i;
                }
            }
        });
    }
}

TEST_P(SeveralNodes, AllReduceKnowsAveragesExtremesFactorsAndSeparateOutputs) {
    const std::uint32_t size = size_of(GetParam());
    for (const std::size_t count : {std::size_t{3}, std::size_t{50'001}}) {
        run_nodes(GetParam(), [&](ProcessGroup& group) {
            const auto rank = static_cast<std::int64_t>(group.rank());
            std::vector<std::int64_t> values(count, rank * 10);
            group.all_reduce(std::span(values), ReduceOp::avg).wait();
            EXPECT_EQ(values, std::vector<std::int64_t>(count, (size - 1) * 10 / 2));
            values.assign(count, rank - 3);
            group.all_reduce(std::span(values), ReduceOp::max).wait();
            EXPECT_EQ(values, std::vector<std::int64_t>(count, std::int64_t{size} - 4));
            const std::vector<double> input(count, 1.0);
            std::vector<double> output(count);
            group
                .all_reduce(ConstTensorView(std::span(input)), TensorView(std::span(output)),
                            Reduction::premultiplied_sum(0.5))
                .wait();
            EXPECT_EQ(output, std::vector<double>(count, size / 2.0));
            EXPECT_EQ(input, std::vector<double>(count, 1.0));
        });
    }
}

TEST_P(SeveralNodes, AllReduceInMemoryOfTheGroupHasTheBitsOfPrivateMemory) {
    Agreement agreement;
    run_nodes(GetParam(), [&](ProcessGroup& group) {
        constexpr std::size_t kCount = 300'007;
        const Buffer buffer = group.allocate(kCount * sizeof(float));
        const std::span<float> shared(static_cast<float*>(buffer.data), kCount);
        std::vector<float> own(kCount);
        fill(own, group.rank());
        fill(shared, group.rank());
        group.all_reduce(std::span(own), ReduceOp::sum).wait();
        group.all_reduce(shared, ReduceOp::sum).wait();
        agreement.add(own);
        agreement.add(shared);
        group.barrier().wait();
    });
}

TEST_P(SeveralNodes, EveryRootBroadcastsItsValues) {
    for (const std::size_t count : kCounts) {
        run_nodes(GetParam(), [&](ProcessGroup& group) {
            for (std::uint32_t root = 0; root < group.world_size(); ++root) {
                std::vector<float> values(count);
                fill(values, group.rank());
                std::vector<float> expected(count);
                fill(expected, root);
                group.broadcast(std::span(values), root).wait();
                ASSERT_EQ(values, expected) << "root " << root;
            }
        });
    }
}

TEST_P(SeveralNodes, CollectivesOverConnectionsAloneFollowThoseOfTwoLevels) {
    run_nodes(GetParam(), [&](ProcessGroup& group) {
        for (int repetition = 0; repetition < 20; ++repetition) {
            std::vector<std::uint32_t> all(group.world_size());
            const std::uint32_t mine = group.rank();
            group.barrier().wait();
            group.all_gather(std::span(&mine, 1), std::span(all)).wait();
            std::vector<std::uint32_t> expected(all.size());
            std::iota(expected.begin(), expected.end(), 0U);
            ASSERT_EQ(all, expected);
            std::vector<float> values(10'000, 1.0F);
            const Work first = group.all_reduce(std::span(values), ReduceOp::sum);
            const Work second = group.broadcast(std::span(all), 1);
            second.wait();
            first.wait();
            ASSERT_EQ(values.back(), static_cast<float>(group.world_size()));
        }
    });
}

TEST(TwoNodes, EachValueCrossesTheNetworkOnceForEachNode) {
    run_nodes({4, 4}, [](ProcessGroup& group) {
        constexpr std::size_t kCount = 400'000;
        const auto& cpu_group =
            dynamic_cast<const cpu::CpuProcessGroup&>(OwnedGroup::within(group));
        const std::uint64_t before = cpu_group.collective_bytes_sent();
        std::vector<float> values(kCount, 1.0F);
        group.all_reduce(std::span(values), ReduceOp::sum).wait();
        // Each of four lanes reduces a quarter over two nodes.
        EXPECT_EQ(cpu_group.collective_bytes_sent() - before, kCount / 4 * sizeof(float));
    });
}

/// In all_reduce on the nodes of `sizes` all ranks name `absent`, which never comes, and no other.
void expect_named(const std::vector<std::uint32_t>& sizes, std::uint32_t absent) {
    run_nodes(sizes, [absent](ProcessGroup& group) {
        group.barrier().wait();
        if (group.rank() == absent) {
            // Stays in the group until the others have given up.
            EXPECT_TRUE(testing::error_of([&] {
                std::vector<float> values(1);
                group.recv(std::span(values), (absent + 1) % group.world_size()).wait();
            }));
            return;
        }
        std::vector<float> values(100'000, 1.0F);
        const auto error =
            testing::error_of(group.all_reduce(TensorView(std::span(values)), ReduceOp::sum,
                                               {.timeout = std::chrono::milliseconds(1500)}));
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::deadline_exceeded) << error->what();
        // Another rank may have reported it first: "rank 1 (...) reports: ...".
        std::string cause = error->what();
        cause.erase(0, cause.rfind("all_reduce"));
        for (std::uint32_t rank = 0; rank < group.world_size(); ++rank) {
            const std::string name = "rank " + std::to_string(rank) + " (";
            EXPECT_EQ(cause.find(name) != std::string::npos, rank == absent) << error->what();
        }
    });
}

TEST(TwoNodes, OnlyTheRankThatNeverComesIsNamed) {
    expect_named({2, 2}, 3);
    expect_named({2, 2}, 0);
    expect_named({1, 3}, 2);
}

TEST(TwoNodes, DifferentCollectivesAreADisagreement) {
    run_nodes({2, 2}, [](ProcessGroup& group) {
        std::vector<float> values(100'000, 1.0F);
        const auto error = testing::error_of([&] {
            if (group.rank() == 2) {
                group.broadcast(std::span(values), 0).wait();
            } else {
                group.all_reduce(std::span(values), ReduceOp::sum).wait();
            }
        });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::invalid_argument) << error->what();
        EXPECT_THAT(error->what(), HasSubstr("do not agree"));
    });
}

TEST(TwoNodes, RankThatLeavesIsNamedByAllOthers) {
    run_nodes({2, 2}, [](ProcessGroup& group) {
        if (group.rank() == 3) {
            return;
        }
        std::vector<float> values(100'000, 1.0F);
        const auto error =
            testing::error_of([&] { group.all_reduce(std::span(values), ReduceOp::sum).wait(); });
        ASSERT_TRUE(error);
        EXPECT_EQ(error->code(), Errc::disconnected) << error->what();
        EXPECT_THAT(error->what(), HasSubstr("rank 3 ("));
    });
}

TEST(TwoNodes, SubgroupsOfOneNodeAndAcrossNodesWork) {
    run_nodes({2, 2}, [](ProcessGroup& group) {
        const auto node = group.new_group({0, 1}, "node");
        const auto most = group.new_group({0, 2, 3}, "most");
        std::vector<float> values(50'000, 1.0F);
        if (group.rank() < 2) {
            node->all_reduce(std::span(values), ReduceOp::sum).wait();
            EXPECT_EQ(values.back(), 2.0F);
        }
        if (group.rank() != 1) {
            values.assign(values.size(), 1.0F);
            most->all_reduce(std::span(values), ReduceOp::sum).wait();
            EXPECT_EQ(values.back(), 3.0F);
        }
        group.barrier().wait();
    });
}

}  // namespace
}  // namespace regroup
