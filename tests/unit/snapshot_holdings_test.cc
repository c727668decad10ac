// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <chrono>
#include <thread>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/snapshot/channel.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/room.h"

namespace regroup::snapshot {
namespace {

using ::testing::ElementsAre;
using Place = Holding::Place;

Holding holding(Place place, std::uint32_t part, std::uint32_t parts, std::uint64_t step) {
    return {place, part, parts, {1, 1, step}};
}
Announcement node(std::uint32_t number, std::vector<Holding> holdings) {
    return {number, "n" + std::to_string(number), "10.0.0.1:1", std::move(holdings)};
}
std::vector<std::uint64_t> steps_of(const std::vector<Candidate>& found) {
    std::vector<std::uint64_t> steps;
    for (const Candidate& candidate : found) {
        steps.push_back(candidate.version.step);
    }
    return steps;
}

TEST(SnapshotHoldings, OnlyWholeVersionsAreCandidatesTheLatestFirst) {
    const auto found =
        candidates({node(0, {holding(Place::room, 0, 2, 30), holding(Place::room, 0, 2, 20)}),
                    node(1, {holding(Place::room, 1, 2, 20), holding(Place::room, 1, 2, 10),
                             holding(Place::folder, 0, 2, 10)})});
    EXPECT_THAT(steps_of(found), ElementsAre(20, 10));
}

TEST(SnapshotHoldings, PartsOfAnotherNumberOfRanksMakeNoWholeVersion) {
    EXPECT_TRUE(candidates({node(0, {holding(Place::room, 0, 2, 20)}),
                            node(1, {holding(Place::room, 1, 3, 20)})})
                    .empty());
}

TEST(SnapshotHoldings, LaterRoundsAndHistoriesComeFirst) {
    Holding later_round = holding(Place::room, 0, 1, 5);
    later_round.version.round = 2;
    Holding later_history = holding(Place::room, 0, 1, 1);
    later_history.version.history = 2;
    EXPECT_THAT(steps_of(candidates(
                    {node(0, {holding(Place::room, 0, 1, 90), later_round, later_history})})),
                ElementsAre(1, 5, 90));
}

TEST(SnapshotHoldings, OwnMemoryIsTriedFirstAndFoldersLast) {
    const auto found =
        candidates({node(0, {holding(Place::folder, 0, 1, 7), holding(Place::copy, 0, 1, 7)}),
                    node(1, {holding(Place::folder, 0, 1, 7), holding(Place::copy, 0, 1, 7)}),
                    node(2, {holding(Place::room, 0, 1, 7)})});
    ASSERT_EQ(found.size(), 1U);
    EXPECT_THAT(found[0].order(0, 1),
                ElementsAre(Source{1, Place::copy}, Source{2, Place::room}, Source{0, Place::copy},
                            Source{1, Place::folder}, Source{0, Place::folder}));
}

TEST(SnapshotHoldings, AnnouncementsSurviveTheWay) {
    const Announcement said =
        node(3, {holding(Place::copy, 1, 2, 40), holding(Place::room, 0, 2, 1)});
    const auto heard = decode_announcement(encode(said));
    ASSERT_TRUE(heard) << heard.error().detail;
    EXPECT_EQ(*heard, said);
    for (const char* text :
         {"", "{}", "[]", R"({"holdings":[{"place":"room","parts":0,"count":1}]})",
          R"({"holdings":[{"place":"moon","parts":1,"count":1}]})",
          R"({"holdings":[{"place":"room","parts":1}]})",
          R"({"holdings":[{"place":"room","part":2,"parts":2,"count":1}]})",
          R"({"holdings":[{"place":"room","part":1,"parts":2,"count":2}]})"}) {
        EXPECT_FALSE(decode_announcement(text)) << text;
    }
}

TEST(SnapshotHoldings, PartsThatFollowEachOtherAreOneElement) {
    Holding run = holding(Place::room, 2, 8, 20);
    run.count = 2;
    EXPECT_THAT(joined({holding(Place::room, 2, 8, 20), holding(Place::room, 2, 8, 10),
                        holding(Place::room, 3, 8, 20), holding(Place::copy, 4, 8, 20),
                        holding(Place::room, 5, 8, 20), holding(Place::room, 6, 9, 20)}),
                ElementsAre(run, holding(Place::room, 2, 8, 10), holding(Place::copy, 4, 8, 20),
                            holding(Place::room, 5, 8, 20), holding(Place::room, 6, 9, 20)));
}

TEST(SnapshotHoldings, AnnouncementOfAFolderIsShortWhateverTheNumberOfRanks) {
    Announcement said = node(0, {});
    for (std::uint64_t step = 1; step <= 5; ++step) {
        for (std::uint32_t part = 0; part < 4096; ++part) {
            said.holdings.push_back(holding(Place::folder, part, 4096, step));
        }
    }
    said.holdings = joined(said.holdings);
    EXPECT_LT(encode(said).size(), 1000U);
    const auto found = candidates({said, node(1, {holding(Place::room, 7, 4096, 5)})});
    ASSERT_EQ(found.size(), 5U);
    EXPECT_THAT(found.front().sources(7),
                ElementsAre(Source{0, Place::folder}, Source{1, Place::room}));
    EXPECT_THAT(found.front().sources(4095), ElementsAre(Source{0, Place::folder}));
}

TEST(SnapshotHoldings, VersionWithAGapIsNoCandidate) {
    Holding first = holding(Place::folder, 0, 6, 20);
    first.count = 3;
    Holding last = holding(Place::copy, 4, 6, 20);
    last.count = 2;
    EXPECT_TRUE(candidates({node(0, {first}), node(1, {last})}).empty());
    last.part = 2;
    last.count = 4;
    EXPECT_THAT(steps_of(candidates({node(0, {first}), node(1, {last})})), ElementsAre(20));
}

TEST(SnapshotHoldings, AsksSurviveTheWay) {
    const Ask said{Ask::Kind::adopt,
                   {"state", 3, 8},
                   {1, 2, 3},
                   Place::copy,
                   "[::1]:7",
                   true,
                   99,
                   7,
                   true,
                   true,
                   true};
    const auto heard = decode_ask(encode(said));
    ASSERT_TRUE(heard) << heard.error().detail;
    EXPECT_EQ(*heard, said);
    const Answer answer{"no memory", 4096, 12, true};
    EXPECT_EQ(*decode_answer(encode(answer)), answer);
    EXPECT_TRUE(decode_answer(encode(Answer{"no \xff memory"})));
    for (const char* text :
         {"", "{}", R"({"ask":"room","state":"../x","parts":1,"place":"room"})"}) {
        EXPECT_FALSE(decode_ask(text)) << text;
    }
}

TEST(SnapshotHoldings, NothingIsGivenUpBeforeALaterVersionIsWhole) {
    const Version a{1, 1, 10};
    const Version b{1, 1, 20};
    const Version c{1, 1, 30};
    EXPECT_FALSE(may_give_up(a, {a, b}, std::nullopt));
    EXPECT_FALSE(may_give_up(a, {a, b}, a));
    EXPECT_TRUE(may_give_up(a, {a, b}, b));
    EXPECT_FALSE(may_give_up(b, {a, b}, b));
    EXPECT_FALSE(may_give_up(a, {a}, b));
    EXPECT_TRUE(may_give_up(a, {a, c}, b));
}

TEST(SnapshotRoom, KeptVersionAndPendingOnesAreNotOverwritten) {
    const SlotContent first{.slot = 0, .version = {1, 1, 10}};
    const SlotContent second{.slot = 1, .version = {1, 1, 20}};
    EXPECT_EQ(slot_for_save({}, {}, {}), 0);
    EXPECT_EQ(slot_for_save({first}, {first.version}, {}), 1);
    EXPECT_EQ(slot_for_save({second, first}, {first.version, second.version}, {}), std::nullopt);
    EXPECT_EQ(slot_for_save({second, first}, {second.version}, first.version), std::nullopt);
    EXPECT_EQ(slot_for_save({second, first}, {}, second.version), 0);
    // An earlier round has left the second, or it was given up.
    EXPECT_EQ(slot_for_save({second, first}, {}, first.version), 1);
    // The newest kept version is in the memory of another node.
    EXPECT_EQ(slot_for_save({second, first}, {}, Version{1, 1, 30}), 0);
}

TEST(SnapshotRoom, CopyIsOfOneVersionOnly) {
    const auto room = Room::create(4096);
    ASSERT_TRUE(room);
    const Version first{1, 1, 10};
    const Version second{1, 1, 20};
    EXPECT_FALSE((*room)->note_copied(first));
    (*room)->publish(0, first, 100);
    EXPECT_FALSE((*room)->find(first)->is_copied);
    EXPECT_TRUE((*room)->note_copied(first));
    EXPECT_TRUE((*room)->find(first)->is_copied);
    EXPECT_FALSE((*room)->find(first)->has_no_copy);
    (*room)->publish(0, second, 100);
    EXPECT_FALSE((*room)->find(second)->is_copied);
    EXPECT_TRUE((*room)->note_copied(second, true));
    EXPECT_TRUE((*room)->find(second)->is_copied);
    EXPECT_TRUE((*room)->find(second)->has_no_copy);
    EXPECT_TRUE((*room)->note_copied(second));
    EXPECT_FALSE((*room)->find(second)->has_no_copy);
}

TEST(SnapshotRoom, LookBesideAWriterFindsNoVersionWithTheFactsOfAnother) {
    const auto made = Room::create(4096);
    ASSERT_TRUE(made);
    Room& room = **made;
    std::atomic<bool> is_over = false;
    // Every fact of a version follows from its step. Of two versions in a slot, one has a copy.
    std::thread writer([&] {
        for (std::uint64_t step = 1; !is_over; ++step) {
            const Version version{step, step, step};
            room.withdraw(step % 2);
            room.publish(step % 2, version, step % 4096);
            if (step % 4 < 2) {
                room.note_copied(version);
            }
        }
    });
    std::size_t found = 0;
    std::size_t wrong = 0;
    for (const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(500);
         std::chrono::steady_clock::now() < end;) {
        for (const SlotContent& content : room.contents()) {
            const std::uint64_t step = content.version.step;
            const bool is_right = content.version == Version{step, step, step} &&
                                  content.slot == step % 2 && content.bytes == step % 4096 &&
                                  (!content.is_copied || step % 4 < 2);
            ++found;
            wrong += is_right ? 0 : 1;
        }
    }
    is_over = true;
    writer.join();
    EXPECT_GT(found, 0U);
    EXPECT_EQ(wrong, 0U);
}

}  // namespace
}  // namespace regroup::snapshot
