// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <cstdint>
#include <map>

#include <gtest/gtest.h>

#include "rendezvous/base/random.h"
#include "rendezvous/core/rank_assignment.h"

namespace regroup::rendezvous {
namespace {

Member member(const std::string& name, const std::string& node = "") {
    Member result;
    result.node = node.empty() ? name : node;
    result.offer.name = name;
    result.offer.address = "10.0.0.1";
    result.store_port = 2000;
    return result;
}

Member slotted(const std::string& name, std::uint32_t slot) {
    Member result = member(name);
    result.offer.slot = slot;
    return result;
}

// Its name is the last part of its key.
Member keyed(const std::string& key, const std::string& node = "") {
    Member result = member(key.substr(key.rfind('.') + 1), node);
    result.offer.rank_key = key;
    return result;
}

std::vector<NodeId> ids(const std::vector<Member>& members) {
    std::vector<NodeId> result;
    for (const Member& one : members) {
        result.push_back(one.node);
    }
    return result;
}

using Nodes = std::vector<NodeId>;

// The members of `all` whose bit is set in `bits`.
std::vector<Member> subset(const std::vector<Member>& all, std::uint32_t bits) {
    std::vector<Member> result;
    for (std::size_t i = 0; i < all.size(); ++i) {
        if ((bits >> i & 1U) != 0) {
            result.push_back(all[i]);
        }
    }
    return result;
}

const std::vector<Member> kFive{member("a"), member("b"), member("c"), member("d"), member("e")};
// The same nodes on two switches, but for one without a key.
const std::vector<Member> kFiveOnSwitches{keyed("s1.a"), keyed("s0.b"), keyed("s1.c"),
                                          keyed("s0.d"), member("e")};

TEST(RankTable, NewNodesAreInNaturalOrder) {
    RankTable table;
    EXPECT_EQ(ids(table.arrange({member("n66"), member("n7"), member("n10")}, 8)),
              (Nodes{"n7", "n10", "n66"}));
}

TEST(RankTable, NodesWithExplicitSlotsComeFirstAndKeepThem) {
    RankTable table;
    EXPECT_EQ(ids(table.arrange({slotted("z", 0), member("a"), slotted("m", 2)}, 3)),
              (Nodes{"z", "a", "m"}));
}

TEST(RankTable, SlotsBeyondTheWorldFillGapsInOrder) {
    RankTable table;
    EXPECT_EQ(ids(table.arrange({slotted("a", 7), slotted("b", 5), slotted("c", 0)}, 8)),
              (Nodes{"c", "b", "a"}));
}

TEST(RankTable, SlotClaimedTwiceStillGivesEachNodeARank) {
    RankTable table;
    EXPECT_EQ(ids(table.arrange({slotted("a", 1), slotted("b", 1)}, 2)).size(), 2U);
}

class RankTableOfFive : public testing::TestWithParam<std::vector<Member>> {};

INSTANTIATE_TEST_SUITE_P(Nodes, RankTableOfFive, testing::Values(kFive, kFiveOnSwitches),
                         [](const auto& test) {
                             return std::string(test.index == 0 ? "ByName" : "BySwitch");
                         });

TEST_P(RankTableOfFive, SameSetHasTheSameRanksInAnyOrderOfArrival) {
    for (std::uint32_t bits = 1; bits < 32; ++bits) {
        std::vector<Member> candidates = subset(GetParam(), bits);
        RankTable first;
        const Nodes expected = ids(first.arrange(candidates, 8));
        do {
            RankTable other;
            ASSERT_EQ(ids(other.arrange(candidates, 8)), expected);
        } while (std::next_permutation(
            candidates.begin(), candidates.end(),
            [](const Member& x, const Member& y) { return x.node < y.node; }));
    }
}

TEST_P(RankTableOfFive, SameSetKeepsItsRanksFromRoundToRound) {
    // Every pair of small sets: after any detour, the same set twice in a row gets the same ranks.
    for (std::uint32_t before = 1; before < 32; ++before) {
        for (std::uint32_t now = 1; now < 32; ++now) {
            RankTable table;
            (void)table.arrange(subset(GetParam(), before), 8);
            const Nodes once = ids(table.arrange(subset(GetParam(), now), 8));
            ASSERT_EQ(ids(table.arrange(subset(GetParam(), now), 8)), once);
        }
    }
}

TEST_P(RankTableOfFive, SurvivorsKeepTheirRanksWheneverTheWorldStaysDense) {
    for (std::uint32_t before = 1; before < 32; ++before) {
        for (std::uint32_t now = 1; now < 32; ++now) {
            RankTable table;
            const Nodes old_ranks = ids(table.arrange(subset(GetParam(), before), 8));
            const Nodes new_ranks = ids(table.arrange(subset(GetParam(), now), 8));
            for (std::size_t rank = 0; rank < old_ranks.size(); ++rank) {
                const auto found = std::find(new_ranks.begin(), new_ranks.end(), old_ranks[rank]);
                if (found != new_ranks.end() && rank < new_ranks.size()) {
                    ASSERT_EQ(static_cast<std::size_t>(found - new_ranks.begin()), rank)
                        << old_ranks[rank] << " from " << before << " to " << now;
                }
            }
        }
    }
}

TEST(RankTable, ReplacementTakesTheSlotOfTheOneItReplaces) {
    RankTable table;
    (void)table.arrange({member("a"), member("b"), member("c")}, 3);
    EXPECT_EQ(ids(table.arrange({member("a"), member("zebra"), member("c")}, 3)),
              (Nodes{"a", "zebra", "c"}));
}

TEST(RankTable, NodeThatComesBackUnderItsNameGetsItsSlotBeforeNewNodes) {
    RankTable table;
    (void)table.arrange({member("a"), member("b"), member("c")}, 4);
    EXPECT_EQ(ids(table.arrange({member("a"), member("aa"), member("c", "c again")}, 4)),
              (Nodes{"a", "aa", "c again"}));
}

TEST(RankTable, NodesOfOneNameAreDistinguished) {
    RankTable table;
    const Nodes first = ids(table.arrange({member("host", "1"), member("host", "2")}, 2));
    EXPECT_EQ(first, (Nodes{"1", "2"}));
    EXPECT_EQ(ids(table.arrange({member("host", "2"), member("host", "3")}, 2)), (Nodes{"3", "2"}));
}

TEST(RankTable, NodesWithAHomeGoBeforeStandbysWhenPlacesAreFew) {
    RankTable table;
    (void)table.arrange({member("b"), member("c")}, 2);
    EXPECT_EQ(ids(table.arrange({member("a"), member("b"), member("c")}, 2)), (Nodes{"b", "c"}));
}

TEST(RankTable, NodesWithStateGoBeforeNewNodes) {
    RankTable table;
    Member holder = member("c");
    holder.held_step = 7;
    EXPECT_EQ(ids(table.arrange({member("a"), member("b"), holder}, 2)), (Nodes{"c", "a"}));
}

TEST(RankTable, NodeWithTheLatestStateAlwaysHasAPlace) {
    RankTable table;
    (void)table.arrange({member("a"), member("b")}, 2);
    Member a = member("a");
    Member c = member("c");
    Member d = member("d");
    c.held_step = 7;
    d.held_step = 8;
    EXPECT_EQ(ids(table.arrange({a, member("b"), c, d}, 2)), (Nodes{"a", "d"}));
    // If one of them has a place already, the others' slots are what counts.
    a.held_step = 8;
    EXPECT_EQ(ids(table.arrange({a, member("b"), c, d}, 2)), (Nodes{"a", "d"}));
    RankTable other;
    (void)other.arrange({member("a"), member("b")}, 2);
    EXPECT_EQ(ids(other.arrange({a, member("b"), c, d}, 2)), (Nodes{"a", "b"}));
}

TEST(RankTable, RandomHistoriesAlwaysGiveDenseWorldsOfTheRightNodes) {
    Random random(7);
    for (int history = 0; history < 300; ++history) {
        RankTable table;
        for (int round = 0; round < 20; ++round) {
            const auto bits = static_cast<std::uint32_t>(1 + random.below(31));
            const std::size_t limit = 1 + random.below(5);
            std::vector<Member> candidates =
                subset(history % 2 == 0 ? kFive : kFiveOnSwitches, bits);
            if (random.chance(0.3)) {
                candidates.front().offer.slot = static_cast<std::uint32_t>(random.below(6));
            }
            const std::size_t expected = std::min(candidates.size(), limit);
            Nodes chosen = ids(table.arrange(candidates, limit));
            ASSERT_EQ(chosen.size(), expected);
            std::sort(chosen.begin(), chosen.end());
            ASSERT_EQ(std::adjacent_find(chosen.begin(), chosen.end()), chosen.end());
        }
    }
}

// ---- Rank keys.

// Ring neighbours, of which the last and the first are two, that do not share the first `count`
// switches of their keys.
std::size_t crossings(const std::vector<Member>& ring, std::size_t count) {
    const auto switches = [&](const Member& one) {
        std::size_t end = 0;
        for (std::size_t i = 0; i < count; ++i) {
            end = one.offer.rank_key.find('.', end) + 1;
        }
        return one.offer.rank_key.substr(0, end);
    };
    std::size_t result = 0;
    for (std::size_t i = 0; i < ring.size(); ++i) {
        result += switches(ring[i]) != switches(ring[(i + 1) % ring.size()]) ? 1 : 0;
    }
    return result;
}

TEST(RankKeys, RingNeighboursAreOfOneSwitch) {
    // By name, each neighbour would be on another switch.
    std::vector<Member> nodes;
    for (const char* key : {"s0.s2.n0", "s1.s4.n1", "s0.s3.n2", "s1.s10.n3", "s0.s2.n4", "s1.s4.n5",
                            "s0.s3.n6", "s1.s10.n7"}) {
        nodes.push_back(keyed(key));
    }
    ASSERT_EQ(crossings(nodes, 2), 8U);
    Random random(11);
    for (int order = 0; order < 100; ++order) {
        for (std::size_t i = nodes.size(); i > 1; --i) {
            std::swap(nodes[i - 1], nodes[random.below(i)]);
        }
        RankTable table;
        const std::vector<Member> ring = table.arrange(nodes, 8);
        ASSERT_EQ(ids(ring), (Nodes{"n0", "n4", "n2", "n6", "n1", "n5", "n3", "n7"}));
        ASSERT_EQ(crossings(ring, 2), 4U);  // Each of four switches is left once.
        ASSERT_EQ(crossings(ring, 1), 2U);  // So are both of those above.
    }
}

TEST(RankKeys, NodesWithoutAKeyComeLastByTheirNames) {
    RankTable table;
    EXPECT_EQ(ids(table.arrange({member("b"), member("a"), keyed("10", "y"), keyed("9", "z")}, 4)),
              (Nodes{"z", "y", "a", "b"}));
}

TEST(RankKeys, KnownNameGoesBeforeANearerFreeRank) {
    RankTable table;
    (void)table.arrange({keyed("s0.a"), keyed("s1.b"), keyed("s1.c")}, 3);
    EXPECT_EQ(ids(table.arrange({keyed("s1.a", "again"), keyed("s1.c"), keyed("s0.d")}, 3)),
              (Nodes{"again", "d", "c"}));
}

TEST(RankKeys, ReplacementTakesTheFreeRankOfItsSwitch) {
    RankTable table;
    (void)table.arrange({keyed("s0.s2.a"), keyed("s0.s2.b"), keyed("s0.s3.c"), keyed("s1.s4.d"),
                         keyed("s1.s4.e"), keyed("s1.s5.f")},
                        6);
    const std::vector<Member> survivors{keyed("s0.s2.a"), keyed("s0.s3.c"), keyed("s1.s5.f")};
    const auto with = [&](const std::vector<std::string>& keys) {
        RankTable copy = table;
        std::vector<Member> candidates = survivors;
        for (const std::string& key : keys) {
            candidates.push_back(keyed(key));
        }
        return ids(copy.arrange(candidates, 6));
    };
    EXPECT_EQ(with({"s1.s4.x", "s0.s2.y", "s1.s4.z"}), (Nodes{"a", "y", "c", "x", "z", "f"}));
    // "w" is on no switch of a lost node, but below the same one; "v" takes what is left.
    EXPECT_EQ(with({"s9.v", "s1.s6.w", "s1.s4.x"}), (Nodes{"a", "v", "c", "x", "w", "f"}));
}

TEST(RankKeys, AsManyReplacementsAsPossibleHaveARankOfTheirSwitch) {
    Random random(13);
    int next_name = 0;
    const auto newcomer = [&] {
        return keyed("s" + std::to_string(random.below(2)) + ".s" +
                     std::to_string(random.below(3)) + ".n" + std::to_string(next_name++));
    };
    const auto leaf = [](const Member& one) {
        return one.offer.rank_key.substr(0, one.offer.rank_key.rfind('.'));
    };
    for (int history = 0; history < 100; ++history) {
        RankTable table;
        std::vector<Member> members;
        for (int i = 0; i < 8; ++i) {
            members.push_back(newcomer());
        }
        members = table.arrange(members, 8);
        for (int round = 0; round < 10; ++round) {
            std::vector<Member> candidates;
            std::map<std::string, std::array<std::size_t, 2>> counts;  // Lost and new, by switch.
            for (const Member& one : members) {
                const bool is_lost = random.chance(0.4);
                const Member& present = candidates.emplace_back(is_lost ? newcomer() : one);
                counts[leaf(one)][0] += is_lost ? 1 : 0;
                counts[leaf(present)][1] += is_lost ? 1 : 0;
            }
            std::size_t expected = 0;
            for (const auto& [name, count] : counts) {
                expected += std::min(count[0], count[1]);
            }
            const std::vector<Member> now = table.arrange(candidates, 8);
            std::size_t found = 0;
            for (std::size_t rank = 0; rank < now.size(); ++rank) {
                const bool is_new = now[rank].node != members[rank].node;
                found += is_new && leaf(now[rank]) == leaf(members[rank]) ? 1 : 0;
            }
            ASSERT_EQ(found, expected);
            members = now;
        }
    }
}

TEST(RankKeys, StandbyWithTheNearestFreeRankComesIn) {
    RankTable table;
    (void)table.arrange({keyed("s0.a"), keyed("s1.b"), keyed("s2.c")}, 3);
    std::vector<Member> candidates{keyed("s0.x"), keyed("s1.y"), keyed("s2.z"), keyed("s0.a"),
                                   keyed("s1.b")};
    RankTable again = table;
    EXPECT_EQ(ids(table.arrange(candidates, 3)), (Nodes{"a", "b", "z"}));
    // Workers that are started already save more time than a near switch.
    candidates[1].warm = true;
    EXPECT_EQ(ids(again.arrange(candidates, 3)), (Nodes{"a", "b", "y"}));
}

TEST(RankKeys, PlaceOfANodeThatLeavesGoesToTheNearestStandby) {
    RankTable table;
    (void)table.arrange({keyed("s0.a"), keyed("s1.b")}, 2);
    std::vector<Member> candidates{keyed("s0.a"), keyed("s1.b"), keyed("s0.x"), keyed("s1.y")};
    candidates[1].leaves = true;
    EXPECT_EQ(ids(table.arrange(candidates, 2)), (Nodes{"a", "y"}));
}

TEST(AssignRanks, WorkersAreNumberedDenselyAndPerRole) {
    std::vector<Member> members{member("a"), member("b"), member("c")};
    members[0].offer.workers = 2;
    members[1].offer.workers = 1;
    members[1].offer.role = "reader";
    members[2].offer.workers = 3;
    const std::vector<Assignment> ranks = assign_ranks(members);
    EXPECT_EQ(ranks[0].first_rank, 0U);
    EXPECT_EQ(ranks[1].first_rank, 2U);
    EXPECT_EQ(ranks[2].first_rank, 3U);
    EXPECT_EQ(ranks[0].role_first_rank, 0U);
    EXPECT_EQ(ranks[1].role_first_rank, 0U);
    EXPECT_EQ(ranks[2].role_first_rank, 2U);
    EXPECT_EQ(ranks[0].role_world_size, 5U);
    EXPECT_EQ(ranks[1].role_world_size, 1U);
    for (const Assignment& one : ranks) {
        EXPECT_EQ(one.world_size, 6U);
        EXPECT_EQ(one.group_world_size, 3U);
        EXPECT_EQ(one.master_port, 2000);
    }
}

TEST(AssignRanks, AllLearnWhetherOneOfThemServesTheRendezvous) {
    std::vector<Member> members{member("a"), member("b")};
    for (const bool serves : {false, true}) {
        members[1].offer.hosts_rendezvous = serves;
        for (const Assignment& one : assign_ranks(members)) {
            EXPECT_EQ(one.member_serves, serves);
        }
    }
}

TEST(MasterAddress, AddressFromTheUserComesBeforeTheOneTheDaemonSaw) {
    std::vector<Member> members{member("a"), member("b")};
    members[0].offer.address = "127.0.0.1";
    members[0].offer.address_is_explicit = true;
    members[0].offer.other_addresses = {"10.0.0.9"};
    EXPECT_EQ(master_address(members), "127.0.0.1");
    members[0].offer.address_is_explicit = false;
    EXPECT_EQ(master_address(members), "10.0.0.9");  // The other node is not on this host.
    members[1].offer.address = "127.0.0.2";
    EXPECT_EQ(master_address(members), "127.0.0.1");  // Now it is.
    members[1].offer.address = "::1";
    EXPECT_EQ(master_address(members), "127.0.0.1");
    members[0].offer.address = "192.168.1.5";
    EXPECT_EQ(master_address(members), "192.168.1.5");
    members[0].offer.address = "127.0.0.1";
    members[0].offer.other_addresses.clear();
    members[1].offer.address = "10.0.0.2";
    EXPECT_EQ(master_address(members), "127.0.0.1");  // The best that is known.
}

TEST(NaturalLess, NumbersInNamesAreComparedAsNumbers) {
    EXPECT_TRUE(natural_less("node7", "node66"));
    EXPECT_FALSE(natural_less("node66", "node7"));
    EXPECT_TRUE(natural_less("node9", "node10"));
    EXPECT_TRUE(natural_less("rack2-node10", "rack10-node1"));
    EXPECT_TRUE(natural_less("a", "a1"));
    EXPECT_TRUE(natural_less("", "a"));
    EXPECT_FALSE(natural_less("a", "a"));
    EXPECT_TRUE(natural_less("n18446744073709551616", "n18446744073709551617"));
}

TEST(NaturalLess, ShortNamesHaveATotalOrder) {
    std::vector<std::string> names{""};
    const std::string letters = "01a-";
    for (std::size_t begin = 0, length = 0; length < 3; ++length) {
        const std::size_t end = names.size();
        for (; begin < end; ++begin) {
            for (const char letter : letters) {
                names.push_back(names[begin] + letter);
            }
        }
    }
    for (const std::string& x : names) {
        for (const std::string& y : names) {
            ASSERT_EQ(natural_less(x, y) + natural_less(y, x), x == y ? 0 : 1) << x << " " << y;
            for (const std::string& z : names) {
                if (natural_less(x, y) && natural_less(y, z)) {
                    ASSERT_TRUE(natural_less(x, z)) << x << " " << y << " " << z;
                }
            }
        }
    }
}

}  // namespace
}  // namespace regroup::rendezvous
