// SPDX-License-Identifier: Apache-2.0
//
// The agent's part in snapshots, asked as workers ask.
#include "agent/snapshot/shelf.h"
#include "tests/conformance/snapshot_support.h"

namespace regroup::agent {
namespace {

constexpr std::size_t kBytes = 100'000;
/// The steps of a node's holdings in one place, as it lists them.
std::vector<std::uint64_t> steps(WorkerChannel& worker, Place place = Place::room) {
    std::vector<std::uint64_t> steps;
    for (const Holding& holding : worker.holdings().holdings) {
        if (holding.place == place) {
            steps.push_back(holding.version.step);
        }
    }
    return steps;
}

TEST(SnapshotKeeper, RoomOutlivesItsWorker) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    {
        WorkerChannel worker = node.open();
        const auto room = worker.room(kPart, 2 * kBytes);
        worker.save(*room, kPart, version(10), kBytes);
        worker.save(*room, kPart, version(20), kBytes);
    }
    WorkerChannel successor = node.open();
    const snapshot::Announcement said = successor.holdings();
    EXPECT_EQ(said.name, "a");
    EXPECT_EQ(said.node, 0U);
    EXPECT_THAT(steps(successor), ElementsAre(20, 10));
    EXPECT_EQ(successor.image(kPart, version(20), Place::room),
              image_of(kPart, version(20), kBytes));
    EXPECT_EQ(successor.room(kPart, kBytes)->contents().size(), 2U);
    auto roomy =
        successor.ask({.kind = Ask::Kind::room, .id = kPart, .bytes = 2 * kBytes, .spare = kBytes});
    EXPECT_EQ((*Room::map(std::move(roomy.file)))->contents().size(), 2U);
    EXPECT_THAT(steps(successor, Place::copy), IsEmpty());
}

TEST(SnapshotKeeper, LargerRoomLeavesTheContentsOfTheOtherUntilItsOwnAreKept) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    const auto small = worker.room(kPart, 2 * kBytes);
    worker.save(*small, kPart, version(10), kBytes);
    worker.whole(kPart, version(10));
    const auto large = worker.room(kPart, 4 * kBytes);
    EXPECT_TRUE(large->contents().empty());
    worker.save(*large, kPart, version(20), 3 * kBytes);
    EXPECT_THAT(steps(worker), ElementsAre(10, 20));
    worker.whole(kPart, version(20));
    EXPECT_THAT(steps(worker), ElementsAre(10, 20));
    worker.kept(kPart, version(20));
    EXPECT_THAT(steps(worker), ElementsAre(20));
}

TEST(SnapshotKeeper, MemoryOfAnotherWorldIsFreeOnceTheNewOneHasAKeptVersion) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    worker.save(*worker.room(kPart, 2 * kBytes), kPart, version(10), kBytes);
    worker.whole(kPart, version(10));
    node.begin(2, 0, 1);
    const PartId alone{"state", 0, 1};
    const auto room = worker.room(alone, 2 * kBytes);
    worker.save(*room, alone, version(11, 2), kBytes);
    EXPECT_THAT(steps(worker), ElementsAre(11, 10));
    worker.kept(alone, version(11, 2));
    EXPECT_THAT(steps(worker), ElementsAre(11));
    EXPECT_THAT(worker.image(kPart, version(10), Place::room), saying("step 10", "any more"));
}

TEST(SnapshotKeeper, FreshRoomLeavesTheOtherAsItIs) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    worker.save(*worker.room(kPart, 2 * kBytes), kPart, version(10), kBytes);
    const auto reply =
        worker.ask({.kind = Ask::Kind::room, .id = kPart, .bytes = 2 * kBytes, .fresh = true});
    EXPECT_EQ(reply.answer.error, "");
    EXPECT_TRUE(worker.room(kPart, kBytes)->contents().empty());
    EXPECT_THAT(steps(worker), ElementsAre(10));
}

TEST(SnapshotKeeper, WithoutAnotherNodeNoCopyIsAwaited) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    const auto room = worker.room(kPart, 2 * kBytes);
    worker.save(*room, kPart, version(10), kBytes);
    EXPECT_TRUE(room->contents().front().is_copied);
    node.begin(2, 0, 2);
    worker.save(*room, kPart, version(20), kBytes);
    EXPECT_FALSE(room->contents().front().is_copied);
    worker.ask({.kind = Ask::Kind::copies_to, .id = kPart});
    EXPECT_TRUE(room->contents().front().is_copied);
}

TEST(SnapshotShelf, WorkersDoNotHearOfCopiesDuringAHold) {
    const auto shelf = std::make_shared<Shelf>(Shelf::Limits{1 << 30, false});
    const auto room = shelf->room({.id = kPart, .bytes = kBytes});
    ASSERT_TRUE(room);
    (*room)->publish(0, version(10), 100);
    {
        const Shelf::Hold hold(shelf);
        shelf->note_copied(kPart, version(10));
        EXPECT_FALSE((*room)->contents().front().is_copied);
    }
    EXPECT_TRUE((*room)->contents().front().is_copied);
}

TEST(SnapshotShelf, MemoryOfACopyIsUsedAgainUnlessAWorkerHasIt) {
    Shelf shelf({1 << 30, false});
    const auto copy = [&](std::uint64_t step) {
        const auto image = shelf.begin_copy(kPart, version(step), 100);
        EXPECT_TRUE(image && *image);
        (*image)->bytes()[0] = std::byte(step);
        shelf.keep_copy(kPart, version(step), *image);
        shelf.set_kept(kPart, version(step));
    };
    copy(1);
    copy(2);
    const auto lent = shelf.lend(kPart, version(2), Place::copy);
    ASSERT_TRUE(lent);
    const UniqueFd worker(::dup(lent->fd));
    const std::uint64_t before = shelf.bytes();
    for (const std::uint64_t step : {3U, 4U, 5U, 6U}) {
        copy(step);
        EXPECT_EQ(bytes_in(worker.get(), 0, 1), std::string(1, '\2'));
        EXPECT_LE(shelf.bytes(), before + 100);
    }
}

TEST(SnapshotShelf, VersionThatWasNeverWholeGivesWayInALaterRound) {
    Shelf shelf({1 << 30, false});
    const auto copy = [&](const Version& version) {
        const auto image = shelf.begin_copy(kPart, version, 100);
        if (!image) {
            return image.error().detail;
        }
        shelf.keep_copy(kPart, version, *image);
        return std::string();
    };
    EXPECT_EQ(copy(version(10)), "");
    EXPECT_EQ(copy(version(20)), "");
    shelf.begin_round(2, true);
    EXPECT_THAT(copy(version(11, 2)), HasSubstr("are needed"));
    shelf.set_whole("state", version(10), Shelf::Teller::worker);
    EXPECT_EQ(copy(version(11, 2)), "");
    EXPECT_TRUE(shelf.has(kPart, version(10), Place::copy));
    EXPECT_FALSE(shelf.has(kPart, version(20), Place::copy));
}

TEST(SnapshotKeeper, RefusalNamesBothNumbersAndTheFlag) {
    SnapshotNode node("a", {.memory_max = 100 << 20});
    node.begin(1, 0, 2);
    WorkerChannel worker = node.open();
    // Twice for the worker and twice for the copies of the other node: 120 MiB.
    const auto refused =
        worker.ask({.kind = Ask::Kind::room, .id = kPart, .bytes = 30 << 20}).answer;
    EXPECT_THAT(refused.error, saying("120 MiB", "100 MiB", "--snapshot-memory"));
    EXPECT_EQ(worker.room(kPart, 30 << 20, true)->slot_bytes(), 30U << 20U);
    const auto second =
        worker.ask({.kind = Ask::Kind::room, .id = {"state", 1, 2}, .bytes = 30 << 20}).answer;
    EXPECT_THAT(second.error, saying("120 MiB", "39 MiB left of the 100 MiB"));
}

TEST(SnapshotShelf, RoomsOfAnEarlierRoundDoNotStandInTheWayOfNewOnes) {
    constexpr std::uint64_t kMany = 30 << 20;
    Shelf shelf({100 << 20, false});
    shelf.begin_round(1, false);
    ASSERT_TRUE(shelf.room({.id = kPart, .bytes = kMany}));
    EXPECT_FALSE(shelf.room({.id = {"state", 1, 2}, .bytes = kMany}));
    shelf.begin_round(2, false);
    ASSERT_TRUE(shelf.room({.id = {"state", 0, 1}, .bytes = kMany}));
    EXPECT_EQ(shelf.bytes(), 2 * (2 * kMany + snapshot::kRoomPageBytes));
    EXPECT_FALSE(shelf.room({.id = {"state", 1, 2}, .bytes = kMany}));
}

TEST(SnapshotKeeper, MalformedMessagesGetAnAnswer) {
    SnapshotNode node("a");
    node.begin(1, 0, 1);
    WorkerChannel worker = node.open();
    EXPECT_THAT(worker.ask_raw("{}").answer.error, HasSubstr("malformed"));
    EXPECT_THAT(worker.ask_raw(std::string(1, '\0')).answer.error, HasSubstr("malformed"));
    EXPECT_THAT(
        worker.ask({.kind = Ask::Kind::saved, .id = kPart, .version = version(1)}).answer.error,
        HasSubstr("step 1"));
    EXPECT_THAT(worker.image(kPart, version(1), Place::folder), HasSubstr("--snapshot-dir"));
}

TEST(SnapshotKeeper, ChannelsEndWithTheKeeper) {
    SnapshotNode node("a");
    WorkerChannel worker = node.open();
    EXPECT_EQ(worker.holdings().name, "a");
    node.end();
    EXPECT_EQ(worker.ask({.id = kPart}).answer.error, "no agent");
}

}  // namespace
}  // namespace regroup::agent
