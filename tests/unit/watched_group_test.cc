// SPDX-License-Identifier: Apache-2.0
//
// A program of its own, since a process opens its page once.
#include <regroup/c_api.h>
#include <regroup/watched_group.h>

#include <array>
#include <cstdlib>
#include <fcntl.h>
#include <memory>
#include <new>
#include <string>
#include <string_view>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/worker_link/collectives_page.h"

namespace regroup {
namespace {

using worker_link::CollectiveBackend;
using worker_link::CollectiveGroup;
using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;
using worker_link::CollectivesPage;
using worker_link::ElementType;
using worker_link::kSignaturesKept;

/// The page that an agent would make.
CollectivesPage& page() {
    static CollectivesPage* const made = [] {
        const int file = ::memfd_create("collectives", MFD_CLOEXEC);
        void* address = MAP_FAILED;
        if (file >= 0 && ::ftruncate(file, sizeof(CollectivesPage)) == 0) {
            address = ::mmap(nullptr, sizeof(CollectivesPage), PROT_READ | PROT_WRITE, MAP_SHARED,
                             file, 0);
        }
        if (address == MAP_FAILED) {
            std::abort();
        }
        const std::string path =
            "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file);
        ::setenv(worker_link::kCollectivesVariable, path.c_str(), 1);
        return ::new (address) CollectivesPage();
    }();
    return *made;
}

std::vector<const CollectiveGroup*> groups() {
    std::vector<const CollectiveGroup*> found;
    for (const CollectiveGroup& group : page().groups) {
        if (group.state.load() == CollectiveGroup::kInUse) {
            found.push_back(&group);
        }
    }
    return found;
}

CollectiveSignature signature_of(const CollectiveGroup& group, std::uint64_t number) {
    return CollectiveSignature::unpacked(group.signatures[number % kSignaturesKept].load());
}

class WatchedGroupTest : public ::testing::Test {
   protected:
    WatchedGroupTest() { page(); }

    WatchedGroup::Identity identity{
        .backend = "gloo", .name = "data", .id = 7, .size = 4, .rank = 1};
};

TEST_F(WatchedGroupTest, AgentSeesTheGroupUntilItEnds) {
    auto group = std::make_unique<WatchedGroup>(identity);
    ASSERT_EQ(groups().size(), 1U);
    const CollectiveGroup& seen = *groups().front();
    EXPECT_EQ(seen.backend.load(), CollectiveBackend::gloo);
    EXPECT_STREQ(seen.name.data(), "data");
    EXPECT_EQ(seen.id.load(), 7U);
    EXPECT_EQ(seen.size.load(), 4U);
    EXPECT_EQ(seen.rank.load(), 1U);
    EXPECT_EQ(seen.knows_ends.load(), 1U);
    EXPECT_EQ(seen.looked_at.load(), 0);
    group.reset();
    EXPECT_TRUE(groups().empty());
}

TEST_F(WatchedGroupTest, CollectivesHaveNumbersAndSignatures) {
    WatchedGroup group(identity);
    const CollectiveGroup& seen = *groups().at(0);
    EXPECT_EQ(group.entered(WatchedOperation::all_reduce, DType::bfloat16, 1024), 1U);
    EXPECT_EQ(group.entered(WatchedOperation::barrier), 2U);
    EXPECT_EQ(seen.entered.load(), 2U);
    EXPECT_EQ(seen.started.load(), 2U);
    EXPECT_EQ(seen.completed.load(), 0U);
    EXPECT_EQ(signature_of(seen, 1),
              (CollectiveSignature{CollectiveKind::all_reduce, ElementType::bfloat16, 1024}));
    EXPECT_EQ(signature_of(seen, 2),
              (CollectiveSignature{CollectiveKind::barrier, ElementType::unknown, 0}));
    group.completed(2);
    EXPECT_EQ(seen.completed.load(), 2U);
}

TEST_F(WatchedGroupTest, EveryOperationAndTypeHasItsOwnName) {
    WatchedGroup group(identity);
    const CollectiveGroup& seen = *groups().at(0);
    const std::array kinds{
        CollectiveKind::all_reduce, CollectiveKind::reduce,         CollectiveKind::broadcast,
        CollectiveKind::all_gather, CollectiveKind::reduce_scatter, CollectiveKind::all_to_all,
        CollectiveKind::gather,     CollectiveKind::scatter,        CollectiveKind::barrier,
        CollectiveKind::send,       CollectiveKind::receive,        CollectiveKind::other};
    const std::array types{
        ElementType::float32,  ElementType::float64,     ElementType::int32,
        ElementType::int64,    ElementType::uint8,       ElementType::int8,
        ElementType::uint32,   ElementType::uint64,      ElementType::float16,
        ElementType::bfloat16, ElementType::float8_e4m3, ElementType::float8_e5m2};
    static_assert(kinds.size() == types.size());
    for (std::size_t i = 0; i < kinds.size(); ++i) {
        const std::uint64_t number =
            group.entered(static_cast<WatchedOperation>(i), static_cast<DType>(i), i);
        EXPECT_EQ(signature_of(seen, number), (CollectiveSignature{kinds[i], types[i], i}));
    }
}

TEST_F(WatchedGroupTest, OneThatLooksForEndsSaysWhenItHasLooked) {
    identity.ends = WatchedGroup::Ends::looked_for;
    WatchedGroup group(identity);
    const CollectiveGroup& seen = *groups().at(0);
    const std::int64_t before = seen.looked_at.load();
    EXPECT_GT(before, 0);
    group.looked();
    EXPECT_GT(seen.looked_at.load(), before);
}

TEST_F(WatchedGroupTest, MessagesNameTheirPeer) {
    WatchedGroup group(identity);
    const CollectiveGroup& seen = *groups().at(0);
    group.message_entered(WatchedOperation::receive, 3, DType::float32, 9);
    EXPECT_EQ(seen.messages_entered.load(), 1U);
    EXPECT_EQ(seen.message_peer.load(), 3U);
    group.message_completed();
    EXPECT_EQ(seen.messages_completed.load(), 1U);
    EXPECT_EQ(seen.entered.load(), 0U);
}

TEST_F(WatchedGroupTest, GroupsBeyondTheRoomOfAPageAreNotWatched) {
    std::vector<std::unique_ptr<WatchedGroup>> many;
    for (std::size_t i = 0; i < worker_link::kGroupsMax; ++i) {
        many.push_back(std::make_unique<WatchedGroup>(identity));
    }
    WatchedGroup further(identity);
    EXPECT_EQ(further.entered(WatchedOperation::barrier), 0U);
    further.completed(1);
    further.looked();
    EXPECT_GE(page().groups_refused.load(), 1U);
}

TEST_F(WatchedGroupTest, AForkedChildTellsNothing) {
    WatchedGroup group(identity);
    group.entered(WatchedOperation::barrier);
    const pid_t child = ::fork();
    if (child == 0) {
        group.entered(WatchedOperation::barrier);
        ::_exit(0);
    }
    ASSERT_GT(child, 0);
    ::waitpid(child, nullptr, 0);
    EXPECT_EQ(groups().at(0)->entered.load(), 1U);
}

TEST_F(WatchedGroupTest, InterfaceForCTellsTheSame) {
    regroup_watched_group* group = nullptr;
    EXPECT_EQ(regroup_watched_group_create("gloo", "data", 7, 4, 1, 3, &group),
              REGROUP_INVALID_ARGUMENT);
    EXPECT_EQ(regroup_watched_group_create("gloo", nullptr, 7, 4, 1, REGROUP_ENDS_TOLD, &group),
              REGROUP_INVALID_ARGUMENT);
    ASSERT_EQ(
        regroup_watched_group_create("gloo", "data", 7, 4, 1, REGROUP_ENDS_LOOKED_FOR, &group),
        REGROUP_OK);
    const CollectiveGroup& seen = *groups().at(0);
    EXPECT_GT(seen.looked_at.load(), 0);
    EXPECT_EQ(regroup_watched_group_entered(group, REGROUP_WATCHED_BROADCAST, REGROUP_INT8, 5), 1U);
    EXPECT_EQ(signature_of(seen, 1),
              (CollectiveSignature{CollectiveKind::broadcast, ElementType::int8, 5}));
    EXPECT_EQ(regroup_watched_group_entered(group, 99, -1, 0), 2U);
    EXPECT_EQ(signature_of(seen, 2),
              (CollectiveSignature{CollectiveKind::other, ElementType::unknown, 0}));
    regroup_watched_group_completed(group, 2);
    regroup_watched_group_looked(group);
    EXPECT_EQ(seen.completed.load(), 2U);
    regroup_watched_group_message_entered(group, REGROUP_WATCHED_SEND, 2, REGROUP_FLOAT32, 1);
    regroup_watched_group_message_completed(group);
    EXPECT_EQ(seen.messages_completed.load(), 1U);
    regroup_watched_group_free(group);
    EXPECT_TRUE(groups().empty());
    EXPECT_EQ(regroup_watched_group_entered(nullptr, REGROUP_WATCHED_BARRIER, -1, 0), 0U);
    regroup_watched_group_completed(nullptr, 1);
    regroup_watched_group_free(nullptr);
}

}  // namespace
}  // namespace regroup
