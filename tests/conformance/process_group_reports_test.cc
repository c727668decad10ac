// SPDX-License-Identifier: Apache-2.0
// The operations of the CPU group in the page of its process.
#include <regroup/process_group.h>

#include <array>
#include <cstdlib>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "tests/conformance/process_group_ranks.h"
#include "tests/support/collectives_file.h"
#include "tests/support/fresh_process.h"
#include "tests/support/program.h"

namespace regroup {
namespace {

using testing::World;
using worker_link::CollectiveGroup;
using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::ElementType;

/// All ranks are threads of one process, so one page has the groups of all.
class GroupReportTest : public ::testing::Test {
   protected:
    [[nodiscard]] bool run(std::uint32_t size, const std::function<void(ProcessGroup&)>& body) {
        return testing::succeeds_in_fresh_process([&] {
            ::setenv(worker_link::kCollectivesVariable, file.path().c_str(), 1);
            World world(size);
            world.options.name = "data";
            run_ranks(world, body);
            return !::testing::Test::HasFailure();
        });
    }
    [[nodiscard]] std::vector<CollectiveGroup*> groups_in_use() {
        std::vector<CollectiveGroup*> found;
        for (CollectiveGroup& group : file.page().groups) {
            if (group.state == CollectiveGroup::kInUse) {
                found.push_back(&group);
            }
        }
        return found;
    }

    testing::CollectivesFile file;
};

CollectiveSignature signature(const CollectiveGroup& group, std::uint64_t number) {
    return CollectiveSignature::unpacked(group.signatures[number % worker_link::kSignaturesKept]);
}

TEST_F(GroupReportTest, OperationsOfEachRankAreOnThePage) {
    EXPECT_TRUE(run(2, [&](ProcessGroup& group) {
        std::array<float, 3> values{};
        group.all_reduce(values, ReduceOp::sum).wait();
        if (group.rank() == 0) {
            group.send(values, 1, 4).wait();
        } else {
            group.recv(values, 0, 4).wait();
        }
        group.broadcast(values, 1).wait();
        group.barrier().wait();
        // Both are looked at before one of them ends.
        group.barrier().wait();
        if (group.rank() == 0) {
            const auto groups = groups_in_use();
            ASSERT_EQ(groups.size(), 2U);
            EXPECT_EQ(groups[0]->id, groups[1]->id);
            EXPECT_NE(groups[0]->rank, groups[1]->rank);
            for (const CollectiveGroup* const one : groups) {
                EXPECT_EQ(one->backend, worker_link::CollectiveBackend::cpu);
                EXPECT_EQ(one->size, 2U);
                EXPECT_EQ(std::string(one->name.data()), "data");
                EXPECT_EQ(one->knows_starts + one->knows_ends, 2U);
                EXPECT_GE(one->entered, 4U);
                EXPECT_GE(one->started, 3U);
                EXPECT_GE(one->completed, 3U);
                EXPECT_LE(one->completed, one->started);
                EXPECT_LE(one->started, one->entered);
                EXPECT_EQ(signature(*one, 1), (CollectiveSignature{CollectiveKind::all_reduce,
                                                                   ElementType::float32, 3}));
                EXPECT_EQ(signature(*one, 2).kind, CollectiveKind::broadcast);
                EXPECT_EQ(signature(*one, 3).kind, CollectiveKind::barrier);
                EXPECT_EQ(one->messages_entered, 1U);
                EXPECT_EQ(one->messages_completed, 1U);
                EXPECT_EQ(one->message_peer, 1 - one->rank);
            }
        }
        group.barrier().wait();
    }));
    EXPECT_TRUE(groups_in_use().empty());
}

TEST_F(GroupReportTest, GroupsOfTheSameNameAndRanksAreToldApart) {
    EXPECT_TRUE(run(2, [&](ProcessGroup& group) {
        const auto first = group.new_group({0, 1}, "pair");
        const auto second = group.new_group({0, 1}, "pair");
        first->barrier().wait();
        group.barrier().wait();
        if (group.rank() == 0) {
            std::map<std::uint64_t, int> ranks_of;
            for (const CollectiveGroup* const one : groups_in_use()) {
                if (std::string(one->name.data()) == "pair") {
                    ++ranks_of[one->id];
                }
            }
            EXPECT_EQ(ranks_of.size(), 2U);
            for (const auto& [id, ranks] : ranks_of) {
                EXPECT_EQ(ranks, 2);
            }
        }
        group.barrier().wait();
    }));
}

TEST_F(GroupReportTest, RankThatWaitsForAnotherHasNotCompleted) {
    EXPECT_TRUE(run(2, [&](ProcessGroup& group) {
        if (group.rank() == 0) {
            group.barrier().wait();
            return;
        }
        EXPECT_TRUE(testing::eventually([&] {
            for (const CollectiveGroup* const one : groups_in_use()) {
                if (one->rank == 0 && one->entered == 1 && one->completed == 0) {
                    return true;
                }
            }
            return false;
        }));
        group.barrier().wait();
    }));
}

}  // namespace
}  // namespace regroup
