// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/worker_link/collectives_writer.h"

#include <cstddef>
#include <cstdlib>
#include <functional>
#include <poll.h>
#include <string>
#include <string_view>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/collectives_file.h"
#include "tests/support/fresh_process.h"

namespace regroup::worker_link {
namespace {

constexpr CollectiveSignature kSum{CollectiveKind::all_reduce, ElementType::float32, 1000};
constexpr CollectiveSignature kGather{CollectiveKind::all_gather, ElementType::bfloat16, 7};

// tests/gpu/torch_profiler.py reads these.
static_assert(kCollectivesVersion == 2 && sizeof(CollectiveGroup) == 4480 &&
              offsetof(CollectivesPage, groups) == 64 && offsetof(CollectiveGroup, id) == 8 &&
              offsetof(CollectiveGroup, name) == 32 && offsetof(CollectiveGroup, entered) == 64 &&
              offsetof(CollectiveGroup, started) == 4224 &&
              offsetof(CollectiveGroup, messages_entered) == 4416);

/// The writers run in processes of their own, since a process opens its page once.
class CollectivesWriterTest : public ::testing::Test {
   protected:
    /// Runs `body` in a process whose page is the file at `path`. True if it returns true.
    static bool run(const std::string& path, const std::function<bool()>& body) {
        return testing::succeeds_in_fresh_process([&] {
            ::setenv(kCollectivesVariable, path.c_str(), 1);
            return body();
        });
    }
    [[nodiscard]] bool run(const std::function<bool()>& body) const {
        return run(file.path(), body);
    }
    [[nodiscard]] CollectivesPage& page() { return file.page(); }
    [[nodiscard]] CollectiveGroup& group(std::size_t index) { return file.group(index); }

    testing::CollectivesFile file;
};

GroupIdentity identity(std::uint64_t id = 1) {
    return {.backend = CollectiveBackend::nccl,
            .id = id,
            .size = 8,
            .rank = 3,
            .name = "data",
            .knows_starts = true,
            .knows_ends = true};
}

std::size_t times_unknown(const CollectiveGroup& group) {
    std::size_t count = 0;
    for (const auto& longest : group.longest) {
        count += longest == 0 ? 1 : 0;
    }
    return count;
}

/// A group that has not ended when its process does.
GroupWriter& kept(const GroupIdentity& of) {
    return *new GroupWriter(of);
}

TEST_F(CollectivesWriterTest, IdentityOfAGroupIsOnThePage) {
    EXPECT_TRUE(run([] {
        GroupIdentity own = identity(0x1234);
        own.name = "a name that is longer than the page has room for";
        own.knows_ends = false;
        kept(own);
        return true;
    }));
    EXPECT_EQ(group(0).state, CollectiveGroup::kInUse);
    EXPECT_EQ(group(0).backend, CollectiveBackend::nccl);
    EXPECT_EQ(group(0).id, 0x1234U);
    EXPECT_EQ(group(0).size, 8U);
    EXPECT_EQ(group(0).rank, 3U);
    EXPECT_EQ(group(0).knows_starts, 1U);
    EXPECT_EQ(group(0).knows_ends, 0U);
    EXPECT_EQ(std::string_view(group(0).name.data()), "a name that is longer than the ");
    EXPECT_EQ(file.groups_in_use(), 1U);
}

TEST_F(CollectivesWriterTest, NumbersAndSignaturesAreOnThePage) {
    EXPECT_TRUE(run([] {
        GroupWriter& writer = kept(identity());
        const bool numbered = writer.entered(kSum) == 1 && writer.entered(kGather) == 2;
        writer.started(2);
        writer.completed(1);
        return numbered;
    }));
    EXPECT_EQ(group(0).entered, 2U);
    EXPECT_EQ(group(0).started, 2U);
    EXPECT_EQ(group(0).completed, 1U);
    EXPECT_EQ(CollectiveSignature::unpacked(group(0).signatures[1]), kSum);
    EXPECT_EQ(CollectiveSignature::unpacked(group(0).signatures[2]), kGather);
    EXPECT_GE(group(0).entered_at[2], group(0).entered_at[1]);
    EXPECT_GE(group(0).started_at, group(0).entered_at[2]);
    EXPECT_GE(group(0).completed_at, group(0).started_at);
}

TEST_F(CollectivesWriterTest, SignaturesOfTheLastCollectivesAreKept) {
    EXPECT_TRUE(run([] {
        GroupWriter& writer = kept(identity());
        for (std::uint64_t count = 1; count <= 600; ++count) {
            writer.entered({CollectiveKind::broadcast, ElementType::int64, count});
        }
        return true;
    }));
    EXPECT_EQ(group(0).entered, 600U);
    for (std::uint64_t number = 345; number <= 600; ++number) {
        const std::uint64_t word = group(0).signatures[number % kSignaturesKept];
        EXPECT_EQ(CollectiveSignature::unpacked(word).elements, number);
    }
}

TEST_F(CollectivesWriterTest, TimesAreKeptByTheKindOfCollective) {
    EXPECT_TRUE(run([] {
        GroupWriter& writer = kept(identity());
        for (int i = 0; i < 3; ++i) {
            const std::uint64_t number = writer.entered(kSum);
            writer.started(number);
            (void)::poll(nullptr, 0, 2);
            writer.completed(number);
        }
        return true;
    }));
    const std::int64_t longest = group(0).longest[time_slot(kSum.packed())];
    EXPECT_GE(longest, 1'000'000);
    EXPECT_GE(group(0).spent, 3'000'000);
    EXPECT_LE(longest, group(0).spent);
    EXPECT_EQ(times_unknown(group(0)), kTimesKept - 1);
}

TEST_F(CollectivesWriterTest, WithoutKnownEndsTheTimeUntilTheNextCollectiveIsKept) {
    EXPECT_TRUE(run([] {
        GroupIdentity own = identity();
        own.knows_starts = own.knows_ends = false;
        GroupWriter& writer = kept(own);
        writer.entered(kSum);
        (void)::poll(nullptr, 0, 2);
        writer.entered({CollectiveKind::barrier});
        return true;
    }));
    EXPECT_GE(group(0).longest[time_slot(kSum.packed())], 1'000'000);
    EXPECT_EQ(times_unknown(group(0)), kTimesKept - 1);
}

TEST_F(CollectivesWriterTest, NumbersOfTheDeviceNeverGoBack) {
    EXPECT_TRUE(run([] {
        GroupWriter& writer = kept(identity());
        for (int i = 0; i < 5; ++i) {
            writer.entered(kSum);
        }
        writer.started(4);
        writer.started(2);
        writer.completed(3);
        writer.completed(1);
        return true;
    }));
    EXPECT_EQ(group(0).started, 4U);
    EXPECT_EQ(group(0).completed, 3U);
}

TEST_F(CollectivesWriterTest, MessagesHaveNumbersOfTheirOwn) {
    const CollectiveSignature send{CollectiveKind::send, ElementType::uint8, 64};
    EXPECT_TRUE(run([&] {
        GroupWriter& writer = kept(identity());
        writer.entered(kSum);
        const bool numbered = writer.message_entered({CollectiveKind::receive}, 2) == 1 &&
                              writer.message_entered(send, 5) == 2;
        writer.messages_completed(2);
        writer.messages_completed(1);
        return numbered;
    }));
    EXPECT_EQ(group(0).entered, 1U);
    EXPECT_EQ(group(0).messages_entered, 2U);
    EXPECT_EQ(group(0).messages_completed, 2U);
    EXPECT_EQ(group(0).message_peer, 5U);
    EXPECT_EQ(CollectiveSignature::unpacked(group(0).message), send);
    EXPECT_GT(group(0).message_at, 0);
}

TEST_F(CollectivesWriterTest, WriterMayFindThatItDoesNotKnowEnds) {
    EXPECT_TRUE(run([] {
        GroupWriter& writer = kept(identity());
        writer.knows(true, false);
        return true;
    }));
    EXPECT_EQ(group(0).knows_starts, 1U);
    EXPECT_EQ(group(0).knows_ends, 0U);
}

TEST_F(CollectivesWriterTest, FullPageCountsTheGroupsThatItRefuses) {
    EXPECT_TRUE(run([] {
        auto& writers = *new std::vector<GroupWriter>;
        for (std::uint64_t i = 0; i < kGroupsMax + 3; ++i) {
            writers.emplace_back(identity(i));
        }
        const bool silent = writers.back().entered(kSum) == 0;
        const bool last_writes = writers[kGroupsMax - 1].entered(kSum) == 1;
        return silent && last_writes;
    }));
    EXPECT_EQ(file.groups_in_use(), kGroupsMax);
    EXPECT_EQ(page().groups_refused, 3U);
}

TEST_F(CollectivesWriterTest, PlaceOfAnEndedGroupIsUsedAgain) {
    EXPECT_TRUE(run([] {
        kept(identity(1));
        {
            GroupWriter ended(identity(2));
            ended.started(ended.entered(kSum));
            ended.completed(1);
            ended.messages_completed(ended.message_entered(kSum, 1));
        }
        GroupWriter& moved = *new GroupWriter(std::move(kept(identity(3))));
        const bool numbered = moved.entered(kGather) == 1;
        return numbered;
    }));
    EXPECT_EQ(file.groups_in_use(), 2U);
    EXPECT_EQ(group(0).id, 1U);
    EXPECT_EQ(group(1).id, 3U);
    EXPECT_EQ(group(1).entered, 1U);
    EXPECT_EQ(group(1).started, 0U);
    EXPECT_EQ(group(1).completed, 0U);
    EXPECT_EQ(group(1).messages_entered, 0U);
    EXPECT_EQ(group(1).messages_completed, 0U);
    EXPECT_EQ(group(1).spent, 0);
    EXPECT_EQ(times_unknown(group(1)), kTimesKept);
}

TEST_F(CollectivesWriterTest, GroupsAreGoneWhenTheirWritersEnd) {
    EXPECT_TRUE(run([] {
        const GroupWriter writer(identity());
        return true;
    }));
    EXPECT_EQ(file.groups_in_use(), 0U);
}

TEST_F(CollectivesWriterTest, ForkedChildWritesNothing) {
    EXPECT_TRUE(run([&] {
        GroupWriter& writer = kept(identity());
        writer.entered(kSum);
        const pid_t child = ::fork();
        if (child == 0) {
            const bool silent = writer.entered(kSum) == 0 && !GroupWriter::has_page();
            {
                const GroupWriter own(identity(2));
            }
            writer = GroupWriter();
            ::_exit(silent ? 0 : 1);
        }
        int status = 0;
        const bool silent = ::waitpid(child, &status, 0) == child && status == 0;
        return silent && writer.entered(kSum) == 2;
    }));
    EXPECT_EQ(file.groups_in_use(), 1U);
    EXPECT_EQ(group(0).entered, 2U);
}

TEST_F(CollectivesWriterTest, LivingProcessIsNotDisplaced) {
    page().pid = ::getpid();
    EXPECT_TRUE(run([] {
        GroupWriter writer(identity());
        return !GroupWriter::has_page() && writer.entered(kSum) == 0;
    }));
    EXPECT_EQ(page().pid, ::getpid());
    EXPECT_EQ(file.groups_in_use(), 0U);
    EXPECT_EQ(page().groups_refused, 0U);
}

TEST_F(CollectivesWriterTest, DeadProcessIsDisplacedWithItsGroups) {
    EXPECT_TRUE(run([] {
        kept(identity(1));
        kept(identity(2));
        return true;
    }));
    const std::int32_t dead = page().pid;
    EXPECT_EQ(file.groups_in_use(), 2U);
    EXPECT_TRUE(run([] {
        GroupWriter& writer = kept(identity(3));
        writer.entered(kSum);
        return true;
    }));
    EXPECT_NE(page().pid, dead);
    EXPECT_EQ(file.groups_in_use(), 1U);
    EXPECT_EQ(group(0).id, 3U);
    EXPECT_EQ(group(0).entered, 1U);
}

TEST_F(CollectivesWriterTest, PageOfAnotherVersionIsLeftAlone) {
    page().version = kCollectivesVersion + 1;
    EXPECT_TRUE(run([] {
        GroupWriter writer(identity());
        return !GroupWriter::has_page() && writer.entered(kSum) == 0;
    }));
    EXPECT_EQ(page().pid, 0);
    EXPECT_EQ(file.groups_in_use(), 0U);
}

TEST_F(CollectivesWriterTest, FileThatIsTooSmallIsLeftAlone) {
    ASSERT_EQ(::ftruncate(file.descriptor(), sizeof(CollectivesPage) - 1), 0);
    EXPECT_TRUE(run([] { return !GroupWriter::has_page(); }));
}

TEST_F(CollectivesWriterTest, WithoutAFileNothingHappens) {
    for (const char* const path : {"", "/nowhere/collectives", "/dev/null", "/proc"}) {
        EXPECT_TRUE(run(path, [] {
            GroupWriter writer(identity());
            writer.knows(false, false);
            writer.started(1);
            writer.completed(1);
            writer.messages_completed(1);
            return !GroupWriter::has_page() && writer.entered(kSum) == 0 &&
                   writer.message_entered(kSum, 1) == 0;
        })) << path;
    }
}

}  // namespace
}  // namespace regroup::worker_link
