// SPDX-License-Identifier: Apache-2.0
//
// Which versions an agent writes to the folder, when, and what it says.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <future>
#include <sys/resource.h>

#include "rendezvous/snapshot/folder.h"
#include "tests/conformance/snapshot_support.h"
#include "tests/support/temporary_directory.h"

namespace regroup::agent {
namespace {

using std::chrono::hours;
using std::chrono::seconds;

constexpr std::size_t kShort = 50'000;

class SnapshotFolderWrites : public ::testing::Test {
   protected:
    [[nodiscard]] SnapshotOptions with_interval(Duration interval) const {
        return {.folder = scratch_.path(), .interval = interval};
    }
    void save(WorkerChannel& worker, const PartId& id, std::uint64_t step) {
        worker.save(*worker.room(id, 2 * kShort), id, version(step), kShort);
    }
    /// Ends as an agent does whose workers have ended.
    static void finish(SnapshotNode& node, Duration limit = seconds(60)) {
        std::promise<void> done;
        node.on_loop([&](SnapshotKeeper& keeper) {
            keeper.finish(limit, [&done] { done.set_value(); });
            return 0;
        });
        done.get_future().wait();
    }
    [[nodiscard]] std::string file(const PartId& id, std::uint64_t step) const {
        std::ifstream file(folder_.file_of(id, version(step)), std::ios::binary);
        return {std::istreambuf_iterator<char>(file), {}};
    }
    [[nodiscard]] bool has(const PartId& id, std::uint64_t step) const {
        return file(id, step) == image_of(id, version(step), kShort);
    }

    const PartId other_{"state", 1, 2};
    testing::TemporaryDirectory scratch_;
    snapshot::Folder folder_{std::filesystem::path(scratch_.path())};
};

TEST_F(SnapshotFolderWrites, VersionThatAllAreToWriteIsWritten) {
    SnapshotNode node("a", with_interval({}));
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    save(worker, kPart, 10);
    EXPECT_TRUE(worker.wants_write());
    save(worker, other_, 10);
    worker.whole(kPart, version(10), true);
    EXPECT_TRUE(wait_until([&] { return folder_.is_complete("state", version(10)); }));
    EXPECT_TRUE(has(kPart, 10));
    EXPECT_TRUE(has(other_, 10));
    EXPECT_EQ(worker.image(kPart, version(10), Place::folder), file(kPart, 10));
}

TEST_F(SnapshotFolderWrites, OnlyGroupRankZeroSaysThatTheTimeHasCome) {
    SnapshotNode node("b", with_interval({}));
    node.begin(1, 1, 2);
    WorkerChannel worker = node.open();
    save(worker, kPart, 10);
    EXPECT_FALSE(worker.wants_write());
}

TEST_F(SnapshotFolderWrites, BeforeTheEndOfTheIntervalNothingIsWritten) {
    SnapshotNode node("a", with_interval(hours(1)));
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    save(worker, kPart, 10);
    EXPECT_FALSE(worker.wants_write());
    worker.whole(kPart, version(10));
    EXPECT_TRUE(folder_.list("state").empty());
}

TEST_F(SnapshotFolderWrites, LastWholeVersionIsWrittenAtTheEnd) {
    SnapshotNode node("a", with_interval(hours(1)));
    node.begin(1, 0, 1);
    {
        WorkerChannel worker = node.open();
        save(worker, kPart, 10);
        save(worker, other_, 10);
        worker.whole(kPart, version(10));
        save(worker, kPart, 20);  // The other rank dies before.
    }
    finish(node);
    EXPECT_TRUE(has(kPart, 10));
    EXPECT_TRUE(has(other_, 10));
    EXPECT_FALSE(has(kPart, 20));
    EXPECT_THAT(node.loop().sentences(),
                ElementsAre(saying("the last whole snapshot, step 10", scratch_.path())));
}

TEST_F(SnapshotFolderWrites, VersionThatMayBeWholeIsWrittenAtTheEnd) {
    SnapshotNode node("a", with_interval(hours(1)));
    node.begin(1, 0, 2);
    {
        WorkerChannel worker = node.open();
        save(worker, kPart, 10);
        worker.whole(kPart, version(10));
        // Another node may have heard that this one is whole before all ended.
        save(worker, kPart, 20);
    }
    finish(node);
    EXPECT_TRUE(has(kPart, 10));
    EXPECT_TRUE(has(kPart, 20));
    EXPECT_THAT(node.loop().sentences(), Contains(saying("this node's part", "step 20")));
}

TEST_F(SnapshotFolderWrites, CopiesOfALostNodeAreWrittenAtTheEnd) {
    SnapshotNode a("a", with_interval(hours(1)));
    SnapshotNode b("b", with_interval(hours(1)));
    a.begin(1, 0, 2);
    b.begin(1, 1, 2);
    WorkerChannel on_b = b.open();
    {
        WorkerChannel on_a = a.open();
        save(on_a, kPart, 10);
        save(on_b, other_, 10);
        const std::string endpoint = on_b.holdings().endpoint;
        on_a.ask({.kind = Ask::Kind::copies_to, .id = kPart, .endpoint = endpoint});
        ASSERT_TRUE(wait_until([&] { return on_b.holdings().holdings.size() == 2; }));
        on_b.whole(other_, version(10));
    }
    a.end();
    finish(b);
    EXPECT_TRUE(has(kPart, 10));
    EXPECT_TRUE(folder_.is_complete("state", version(10)));
    EXPECT_THAT(b.loop().sentences(), ElementsAre(saying("last whole snapshot, step 10")));
}

TEST_F(SnapshotFolderWrites, DamagedMemoryIsNotWritten) {
    SnapshotNode node("a", with_interval(hours(1)));
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    const auto room = worker.room(kPart, 2 * kShort);
    worker.save(*room, kPart, version(10), kShort);
    worker.whole(kPart, version(10));
    std::byte& byte = room->slot(room->contents().front().slot)[kShort];
    byte ^= std::byte{1};
    finish(node);
    EXPECT_TRUE(folder_.list("state").empty());
    EXPECT_THAT(node.loop().sentences(), ElementsAre(saying("step 10", "part 0", "weights")));
}

TEST_F(SnapshotFolderWrites, FullDiskIsToldAndLeavesTheVersionBefore) {
    SnapshotNode node("a", with_interval(hours(1)));
    node.begin(1, 0, 1);
    const PartId alone{"state", 0, 1};
    WorkerChannel worker = node.open();
    save(worker, alone, 10);
    worker.whole(alone, version(10), true);
    ASSERT_TRUE(wait_until([&] { return folder_.is_complete("state", version(10)); }));
    save(worker, alone, 20);
    worker.whole(alone, version(20));
    std::signal(SIGXFSZ, SIG_IGN);
    rlimit before{};
    ::getrlimit(RLIMIT_FSIZE, &before);
    const rlimit small{kShort / 2, before.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    finish(node);
    ::setrlimit(RLIMIT_FSIZE, &before);
    EXPECT_TRUE(has(alone, 10));
    EXPECT_EQ(folder_.list("state").size(), 1U);
    EXPECT_THAT(node.loop().sentences(),
                Contains(saying("step 20", "could not be written", "File too large")));
}

TEST_F(SnapshotFolderWrites, DiskThatIsTooSlowIsGivenUp) {
    SnapshotNode node("a", with_interval(hours(1)));
    node.begin(1, 0, 1);
    constexpr std::size_t kMany = 64'000'000;  // Not written in no time.
    const PartId alone{"state", 0, 1};
    WorkerChannel worker = node.open();
    worker.save(*worker.room(alone, 2 * kMany), alone, version(10), kMany);
    finish(node, {});
    EXPECT_THAT(node.loop().sentences(),
                Contains(saying("could not be written", scratch_.path(), "--shutdown-timeout")));
    node.end();
    EXPECT_FALSE(folder_.is_complete("state", version(10)));
}

TEST_F(SnapshotFolderWrites, WithoutAFolderTheEndComesAtOnce) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    save(worker, kPart, 10);
    finish(node, {});
    EXPECT_THAT(node.loop().sentences(), IsEmpty());
}

}  // namespace
}  // namespace regroup::agent
