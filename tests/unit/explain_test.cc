// SPDX-License-Identifier: Apache-2.0
// The conclusions from the flight records, positions and stacks of a hanging round.
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "agent/explain/explanation.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

enum class Now : std::uint8_t { scheduled, started, completed };

RecordedOperation collective(std::uint64_t number, Now now, const std::string& name = "all_reduce",
                             std::uint64_t elements = 8, const std::string& type = "Float") {
    RecordedOperation operation;
    operation.number = number;
    operation.name = name;
    operation.type = type;
    operation.elements = elements;
    operation.started = now != Now::scheduled;
    operation.completed = now == Now::completed;
    return operation;
}

RecordedOperation message(const std::string& name, std::uint64_t number, std::uint32_t peer) {
    RecordedOperation operation = collective(number, Now::started, name);
    operation.is_message = true;
    operation.peer = peer;
    return operation;
}

RecordedGroup group(Ranks ranks, std::vector<RecordedOperation> operations,
                    const std::string& name = "world", std::uint64_t round = 1) {
    return {"gloo", name, "0", round, std::move(ranks), std::move(operations)};
}

/// A job of `world` ranks that all run, in round 1.
HangFacts job(std::uint32_t world) {
    NodeFacts node;
    node.job = "j";
    node.round = 1;
    node.reason = "rank 1 is silent";
    node.world_size = world;
    node.node = "n";
    for (std::uint32_t rank = 0; rank < world; ++rank) {
        node.ranks.emplace_back();
        node.ranks.back().rank = rank;
        node.ranks.back().state = ProcessState::running;
    }
    HangFacts facts;
    add(facts, node);
    return facts;
}

void give(HangFacts& facts, std::uint32_t rank, std::vector<RecordedGroup> groups,
          Recorder recorder = Recorder::sdk) {
    facts_of(facts, rank).records.push_back({recorder, std::move(groups)});
}

std::string all_text(const HangFacts& facts) {
    std::string text;
    for (const std::string& line : text_of(facts, explain(facts))) {
        text += line + "\n";
    }
    return text;
}

TEST(Explain, RankThatHasNotEnteredACollectiveIsNamed) {
    HangFacts facts = job(3);
    const Ranks all{0, 1, 2};
    give(facts, 0, {group(all, {collective(1, Now::completed), collective(2, Now::started)})});
    give(facts, 1, {group(all, {collective(1, Now::completed)})});
    give(facts, 2, {group(all, {collective(1, Now::completed), collective(2, Now::started)})});
    facts_of(facts, 1).frames = {"nanosleep", "load_batch"};

    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::not_entered);
    EXPECT_THAT(result.culprits, ElementsAre(1));
    ASSERT_THAT(result.collectives, SizeIs(1));
    EXPECT_EQ(result.collectives[0].number, 2U);
    EXPECT_THAT(result.collectives[0].entered, ElementsAre(0, 2));
    EXPECT_THAT(result.collectives[0].not_entered, ElementsAre(1));
    const std::string text = all_text(facts);
    EXPECT_THAT(text, HasSubstr("Ranks 0, 2 wait in all_reduce #2 of group \"world\".\n"
                                "Rank 1 has not entered it.\n"));
    EXPECT_THAT(text, HasSubstr("    load_batch\n"));
}

TEST(Explain, CollectiveThatARankHasCompletedHoldsNobody) {
    // A loop in rank 1 holds the lock that its record needs.
    HangFacts facts = job(3);
    const Ranks all{0, 1, 2};
    for (const std::uint32_t rank : {0U, 2U}) {
        give(facts, rank,
             {group(all, {collective(60, Now::completed), collective(61, Now::started)})},
             Recorder::agent);
    }
    give(facts, 1, {group(all, {collective(59, Now::started), collective(60, Now::started)})},
         Recorder::agent);
    const Explanation explanation = explain(facts);
    EXPECT_EQ(explanation.kind, HangKind::not_entered);
    EXPECT_EQ(explanation.culprits, Ranks{1});
    ASSERT_EQ(explanation.collectives.size(), 1U);
    EXPECT_EQ(explanation.collectives[0].number, 61U);
}

TEST(Explain, RankThatHasFinishedComesFirst) {
    HangFacts facts = job(3);
    facts_of(facts, 0).state = ProcessState::stopped;
    facts_of(facts, 1).state = ProcessState::finished;
    EXPECT_EQ(explain(facts).kind, HangKind::stopped);  // Stopped processes are certain evidence.
    facts_of(facts, 0).state = ProcessState::running;
    EXPECT_EQ(explain(facts).kind, HangKind::finished);
    EXPECT_THAT(explain(facts).culprits, ElementsAre(1));
    EXPECT_THAT(all_text(facts), HasSubstr("rank 1 on n: finished with exit code 0\n"));
    give(facts, 0, {group({0, 1, 2}, {collective(1, Now::started)})});
    give(facts, 2, {group({0, 1, 2}, {collective(1, Now::started)})});
    EXPECT_EQ(explain(facts).kind, HangKind::finished);
}

TEST(Explain, RankWithoutAnyOperationOfTheGroupHasNotEntered) {
    HangFacts facts = job(2);
    give(facts, 0, {group({0, 1}, {collective(1, Now::started)})});
    give(facts, 1, {});
    EXPECT_THAT(explain(facts).collectives.at(0).not_entered, ElementsAre(1));
}

TEST(Explain, RankAheadOfTheRecordHasCompletedTheCollective) {
    HangFacts facts = job(3);
    const Ranks all{0, 1, 2};
    // A root of a broadcast may be far ahead of the others.
    give(facts, 0, {group(all, {collective(9, Now::started)})});
    give(facts, 1, {group(all, {collective(5, Now::started, "broadcast")})});
    give(facts, 2, {group(all, {collective(4, Now::completed)})});
    const Explanation result = explain(facts);
    ASSERT_THAT(result.collectives, SizeIs(1));
    EXPECT_EQ(result.collectives[0].number, 5U);
    EXPECT_THAT(result.collectives[0].completed, ElementsAre(0));
    EXPECT_THAT(result.collectives[0].entered, ElementsAre(1));
    EXPECT_THAT(result.culprits, ElementsAre(2));
}

TEST(Explain, StoppedRankWithoutARecordIsPlacedByItsPage) {
    HangFacts facts = job(3);
    const Ranks all{0, 1, 2};
    for (const std::uint32_t rank : {0U, 1U}) {
        give(facts, rank, {group(all, {collective(7, Now::started)})});
        facts_of(facts, rank).operations = 7;
    }
    facts_of(facts, 2).state = ProcessState::stopped;
    facts_of(facts, 2).operations = 6;
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::not_entered);
    EXPECT_THAT(result.collectives.at(0).not_entered, ElementsAre(2));
    EXPECT_THAT(result.collectives.at(0).unknown, IsEmpty());
    EXPECT_THAT(all_text(facts), HasSubstr("rank 2 on n: its process is stopped"));
}

TEST(Explain, RankWithoutARecordMayHaveEntered) {
    HangFacts facts = job(2);
    give(facts, 0, {group({0, 1}, {collective(7, Now::started)})});
    const Explanation result = explain(facts);
    EXPECT_THAT(result.collectives.at(0).not_entered, IsEmpty());
    EXPECT_THAT(result.collectives.at(0).unknown, ElementsAre(1));
    EXPECT_THAT(result.culprits, ElementsAre(1));
    EXPECT_THAT(all_text(facts), HasSubstr("No flight record says whether rank 1 has entered it."));
}

TEST(Explain, GoneRankIsNamedBeforeOthersThatAreAwaited) {
    HangFacts facts = job(3);
    const Ranks all{0, 1, 2};
    give(facts, 0, {group(all, {collective(2, Now::started)})});
    give(facts, 1, {group(all, {collective(1, Now::completed)})});
    facts_of(facts, 2).state = ProcessState::gone;
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::gone);
    EXPECT_THAT(result.culprits, ElementsAre(2));
    EXPECT_THAT(all_text(facts), HasSubstr("The others wait for rank 2, whose process is gone."));
}

TEST(Explain, DifferentOperationsUnderOneNumberAreAMismatch) {
    HangFacts facts = job(3);
    const Ranks all{0, 1, 2};
    give(facts, 0, {group(all, {collective(2, Now::started)})});
    give(facts, 1, {group(all, {collective(2, Now::started, "broadcast")})});
    give(facts, 2, {group(all, {collective(2, Now::started)})});
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::mismatch);
    EXPECT_THAT(result.culprits, ElementsAre(1));
    const Mismatch& mismatch = result.collectives.at(0).mismatches.at(0);
    EXPECT_EQ(mismatch.what, "operation");
    EXPECT_EQ(mismatch.sides.at(0).value, "all_reduce");
    EXPECT_THAT(mismatch.sides.at(0).ranks, ElementsAre(0, 2));
    EXPECT_THAT(all_text(facts),
                HasSubstr("different operation: all_reduce on ranks 0, 2; broadcast on rank 1\n"));
}

TEST(Explain, DifferentSizesAreAMismatchOnlyWhereSizesMustBeEqual) {
    for (const bool must_be_equal : {true, false}) {
        const std::string name = must_be_equal ? "all_reduce" : "all_to_all";
        HangFacts facts = job(2);
        give(facts, 0, {group({0, 1}, {collective(2, Now::started, name, 8)})});
        give(facts, 1, {group({0, 1}, {collective(2, Now::started, name, 9)})});
        const Explanation result = explain(facts);
        EXPECT_EQ(result.kind, must_be_equal ? HangKind::mismatch : HangKind::all_entered);
        EXPECT_THAT(result.culprits, must_be_equal ? Ranks({0, 1}) : Ranks());
    }
}

TEST(Explain, RanksThatWaitForEachOtherInTwoGroupsAreACircle) {
    HangFacts facts = job(2);
    const auto waits_in = [](const std::string& name) {
        return std::vector{group({0, 1}, {collective(1, Now::started)}, name)};
    };
    give(facts, 0, waits_in("a"));
    give(facts, 1, waits_in("b"));
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::circle);
    EXPECT_THAT(result.collectives, SizeIs(2));
    EXPECT_THAT(result.culprits, ElementsAre(0, 1));
}

TEST(Explain, OnlyTheEndOfAChainOfWaitsIsACulprit) {
    // Rank 0 waits for 1, which waits for 2 in another group, which waits for nobody.
    HangFacts facts = job(3);
    give(facts, 0, {group({0, 1}, {collective(1, Now::started)}, "a")});
    give(facts, 1, {group({1, 2}, {collective(1, Now::started)}, "b")});
    give(facts, 2, {});
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::not_entered);
    EXPECT_THAT(result.culprits, ElementsAre(2));
}

TEST(Explain, ReceiverWaitsForItsSenderByTheRanksOfTheGroup) {
    HangFacts facts = job(4);
    give(facts, 3, {group({1, 3}, {message("recv", 4, 0)})});
    give(facts, 1, {});
    const Explanation result = explain(facts);
    ASSERT_THAT(result.messages, SizeIs(1));
    EXPECT_EQ(result.messages[0].rank, 3U);
    EXPECT_EQ(result.messages[0].peer, 1U);
    EXPECT_EQ(result.kind, HangKind::not_entered);
    EXPECT_THAT(result.culprits, ElementsAre(1));
}

TEST(Explain, DeviceThatHasNotBegunTheCollectiveIsNamed) {
    HangFacts facts = job(2);
    give(facts, 0, {group({0, 1}, {collective(3, Now::started)})});
    give(facts, 1, {group({0, 1}, {collective(3, Now::scheduled)})});
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::not_started);
    EXPECT_THAT(result.culprits, ElementsAre(1));
}

TEST(Explain, BackEndThatNeverSaysStartedBlamesNoDevice) {
    HangFacts facts = job(2);
    for (const std::uint32_t rank : {0U, 1U}) {
        give(facts, rank, {group({0, 1}, {collective(3, Now::scheduled)})});
    }
    EXPECT_EQ(explain(facts).kind, HangKind::all_entered);
    EXPECT_THAT(explain(facts).collectives.at(0).not_started, IsEmpty());
}

TEST(Explain, GroupsOfAnEarlierRoundAreIgnored) {
    HangFacts facts = job(2);
    facts.round = 2;
    give(facts, 0,
         {group({0, 1}, {collective(90, Now::started)}, "world", 1),
          group({0, 1}, {collective(1, Now::started)}, "world", 2)});
    give(facts, 1, {group({0, 1}, {}, "world", 2)});
    const Explanation result = explain(facts);
    ASSERT_THAT(result.collectives, SizeIs(1));
    EXPECT_EQ(result.collectives[0].number, 1U);
}

TEST(Explain, RankInAnOlderStepIsNamedWithoutRecords) {
    HangFacts facts = job(3);
    for (const std::uint32_t rank : {0U, 1U, 2U}) {
        facts_of(facts, rank).step = rank == 1 ? 99 : 100;
    }
    const Explanation result = explain(facts);
    EXPECT_EQ(result.kind, HangKind::older_step);
    EXPECT_THAT(result.behind, ElementsAre(1));
    EXPECT_THAT(result.culprits, ElementsAre(1));
    EXPECT_THAT(all_text(facts), HasSubstr("Rank 1 is behind, in an older step."));
}

TEST(Explain, GlooGroupOfPyTorchHasAllRanksIfItIsTheDefaultGroup) {
    for (const bool is_default : {true, false}) {
        HangFacts facts = job(3);
        const std::string name = is_default ? "default_pg" : "pair";
        give(facts, 0, {group({}, {collective(1, Now::scheduled)}, name, 0)}, Recorder::pytorch);
        const StuckCollective stuck = explain(facts).collectives.at(0);
        EXPECT_EQ(stuck.members_are_known, is_default);
        EXPECT_THAT(stuck.members, SizeIs(is_default ? 3 : 1));
    }
}

TEST(Explain, NothingSavedGivesNoCulprit) {
    const HangFacts facts = job(2);
    EXPECT_EQ(explain(facts).kind, HangKind::nothing);
    EXPECT_THAT(explain(facts).culprits, IsEmpty());
    EXPECT_EQ(explain(HangFacts()).kind, HangKind::nothing);
}

TEST(Explain, JsonHasTheSameConclusion) {
    HangFacts facts = job(2);
    give(facts, 0, {group({0, 1}, {collective(2, Now::started)})});
    give(facts, 1, {group({0, 1}, {collective(1, Now::completed)})});
    facts_of(facts, 1).doing = "bad \xff utf-8";
    const auto json = nlohmann::json::parse(json_of(facts, explain(facts)));
    EXPECT_EQ(json.at("version"), 1);
    EXPECT_EQ(json.at("verdict"), "not_entered");
    EXPECT_EQ(json.at("culprits"), nlohmann::json::parse("[1]"));
    EXPECT_EQ(json.at("collectives").at(0).at("not_entered"), nlohmann::json::parse("[1]"));
    EXPECT_EQ(json.at("ranks").at(0).at("recorders"), nlohmann::json::parse("[\"sdk\"]"));
}

TEST(Explain, FactsOfANodeAreReadAsTheyWereWritten) {
    NodeFacts node;
    node.job = "j";
    node.round = 7;
    node.reason = "why \"so\"";
    node.world_size = 4;
    node.node = "n1";
    node.ranks.resize(2);
    node.ranks[0].rank = 2;
    node.ranks[0].state = ProcessState::stopped;
    node.ranks[0].pid = 12;
    node.ranks[0].step = 5;
    node.ranks[0].operations = 9;
    node.ranks[0].doing = "section 'x'";
    node.ranks[1].rank = 3;
    node.ranks[1].state = ProcessState::gone;
    const std::string text = write_node_facts(node);
    const Result<NodeFacts> back = read_node_facts(text);
    ASSERT_TRUE(back);
    EXPECT_EQ(write_node_facts(*back), text);
    EXPECT_FALSE(back->ranks.at(1).step);

    HangFacts facts;
    add(facts, *back);
    EXPECT_THAT(facts.ranks, SizeIs(4));
    EXPECT_EQ(facts.ranks[0].state, ProcessState::unknown);
    EXPECT_EQ(facts.ranks[3].state, ProcessState::gone);
}

TEST(Explain, FactsThatNoAgentWroteAreRefused) {
    for (const std::string text :
         {"", "{", "[]", "{\"version\": 2}", "{\"version\": 1}",
          R"({"version":1,"job":"j","round":1,"reason":"","world_size":1,"node":"n",)"
          R"("ranks":[{"rank":1,"state":"running"}]})",
          R"({"version":1,"job":"j","round":1,"reason":"","world_size":4000000000,"node":"n",)"
          R"("ranks":[]})"}) {
        EXPECT_FALSE(read_node_facts(text)) << text;
    }
}

}  // namespace
}  // namespace regroup::agent
