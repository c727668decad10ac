// SPDX-License-Identifier: Apache-2.0
//
// The cause of a round's end, and the node that it is charged to.
#include <sstream>

#include <gtest/gtest.h>

#include "rendezvous/core/evidence.h"
#include "tests/unit/rendezvous_job.h"

namespace regroup::rendezvous {
namespace {

using Charged = Judgement::Charge;

/// Evidence is written as a list of words, and the word that ended the round in brackets:
/// "link a0-b2", "crash b2", "error b2", "said b2" (an error that it announced), "late b2" (an
/// error of the SDK: another rank did not come), "left-alone b2" (another rank had ended), "final
/// b2" (trying again cannot help), "lost c", "left c", "gave-up c", "spent c", "hang b2", "silent
/// b2". Ranks 0 and 1 are on node a, 2 and 3 on b, 4 and 5 on c.
Evidence evidence(const std::string& what, const std::string& who) {
    const std::string node = who.substr(0, 1);
    const auto rank = [](const std::string& text) {
        return static_cast<std::uint32_t>(std::stoul(text));
    };
    WorkerFailure failure;
    failure.node = node;
    failure.exit_code = 1;
    if (who.size() > 1 && what != "link") {
        failure.rank = rank(who.substr(1));
    }
    if (what == "link") {
        const std::size_t dash = who.find('-');
        return {
            {},
            Evidence::LinkBroken{node,
                                 {rank(who.substr(1, dash - 1)), node, rank(who.substr(dash + 2)),
                                  who.substr(dash + 1, 1), false, "closed it"}}};
    }
    if (what == "lost") {
        return {{}, Evidence::NodeGone{node, {Departure::Kind::silent, seconds(3)}}};
    }
    if (what == "left") {
        return {{}, Evidence::NodeGone{node, {Departure::Kind::left, {}, 1, "SIGTERM"}}};
    }
    if (what == "gave-up" || what == "spent") {
        return {{}, Evidence::RoundAbandoned{node, what == "spent"}};
    }
    if (what == "hang" || what == "silent") {
        failure.kind = FailureKind::hang;
        return {{},
                Evidence::HangFound{failure, causes::Hung{RoundId{4}, "it hangs", {}, false},
                                    what == "hang"}};
    }
    failure.signal = what == "crash" ? SIGSEGV : 0;
    failure.announced = what == "said";
    failure.peer_error = what == "late"         ? PeerError::awaited
                         : what == "left-alone" ? PeerError::lost
                                                : PeerError::none;
    failure.kind = what == "final" ? FailureKind::user_error : FailureKind::failure;
    return {{}, Evidence::WorkerFailed{failure}};
}

struct Case {
    const char* evidence;
    Charged charge;
    const char* cause;
};

/// `late`: the round ends only after all of it was heard, as if one message had brought it all.
Judgement judged(const std::string& words, bool leaver_may_be_gone = false, bool late = false) {
    EvidenceLog log;
    RoundEnd end;
    end.planned = "node d joined";
    end.leaver_may_be_gone = leaver_may_be_gone;
    const bool is_planned = words.find('[') == std::string::npos;
    if (is_planned && !late) {
        log.end(std::nullopt);
    }
    std::istringstream stream(words);
    std::string what;
    std::string who;
    while (stream >> what >> who) {
        const bool is_trigger = what.starts_with('[');
        if (is_trigger) {
            end.by = log.entries().size();
            what = what.substr(1);
            who.pop_back();
        }
        log.add(evidence(what, who));
        if (is_trigger && !late) {
            log.end(end.by);
        }
    }
    if (late) {
        log.end(end.by);
    }
    return log.judge(end);
}

TEST(Judge, JudgementNamesTheCauseAndTheCharge) {
    constexpr const char* kA =
        "the connection between rank 0 on a and rank 2 on b broke: rank 2 closed it";
    constexpr const char* kBoth = "the connection between rank 0 on a and rank 2 on b broke";
    constexpr const char* kLost = "node c is lost: silent for 3.0 s";
    constexpr const char* kCrash = "rank 2 on b was ended by SIGSEGV";
    constexpr const char* kError = "rank 2 on b exited with code 1";
    const Case cases[] = {
        // A failure and its consequences.
        {"[error b2]", Charged::failure, kError},
        {"[error b2] error a0 error c4", Charged::failure, kError},
        {"[error a0] crash b2", Charged::failure, kCrash},
        {"[crash b2] crash a0", Charged::failure, kCrash},
        {"[error a0] said b2", Charged::failure, kError},
        // Errors that came from another rank.
        {"[left-alone b2]", Charged::failure, kError},
        {"[left-alone a0] error b2 left-alone c4", Charged::failure, kError},
        {"[left-alone a0] late b2 late c4", Charged::failure, kError},
        {"[late b2] left-alone a0 late c4", Charged::failure, kError},
        {"[late a0] left-alone c4 error b2", Charged::failure, kError},
        {"[gave-up c] left-alone a0 late b2", Charged::failure, kError},
        {"[link a0-b2] left-alone b2 error c4", Charged::failure, kError},
        // A lost node explains failures.
        {"[lost c]", Charged::losses, kLost},
        {"[error b2] lost c", Charged::losses, kLost},
        {"[lost c] crash b2 said a0", Charged::losses, kLost},
        {"[left c]", Charged::none, "node c left: SIGTERM"},
        {"[left c] error b2", Charged::none, "node c left: SIGTERM"},
        // A planned change is not charged, but an announced failure is.
        {"", Charged::none, "node d joined"},
        {"error b2 crash a0", Charged::none, "node d joined"},
        {"said b2", Charged::failure, kError},
        {"final b2", Charged::failure, kError},
        // Connections.
        {"[link a0-b2]", Charged::network, kA},
        {"link a0-b2 [link b2-a0]", Charged::network, kBoth},
        {"[link a0-b2] crash b2", Charged::failure, kCrash},
        {"[link a0-b2] error b2", Charged::failure, kError},
        {"[link a0-b2] error c4", Charged::network, kA},
        {"[link a0-b2] error a0", Charged::network, kA},
        {"[link a0-b2] link c4-a0 error a0", Charged::network, kA},
        {"link a0-b2 [link b2-a0] link a1-c4 error c4", Charged::network, kBoth},
        {"[link a0-b2] lost c error b2", Charged::losses, kLost},
        // Rounds that a node abandoned.
        {"[gave-up c]", Charged::network, "node c gave the round up"},
        {"link a0-b2 [gave-up c]", Charged::network, kA},
        {"[gave-up c] crash b2", Charged::failure, kCrash},
        {"[gave-up c] error b2", Charged::failure, kError},
        {"[spent c] error b2", Charged::network,
         "node c gave the round up: it could no longer serve the store of the round"},
        {"[error b2] spent c", Charged::network,
         "node c gave the round up: it could no longer serve the store of the round"},
        {"[crash b2] spent c", Charged::failure, kCrash},
        // Hangs for which no agent reports the end of a worker.
        {"[hang b2]", Charged::failure, "round 4 hangs: it hangs"},
        {"[hang b2] crash b2", Charged::failure, kCrash},
    };
    for (const Case& one : cases) {
        for (const bool late : {false, true}) {
            const Judgement judgement = judged(one.evidence, false, late);
            EXPECT_EQ(judgement.charge, one.charge) << one.evidence;
            EXPECT_EQ(judgement.cause, one.cause) << one.evidence;
        }
    }
}

TEST(Judge, NodeIsBlamedForAHangOnlyWithProof) {
    EXPECT_FALSE(judged("[hang b2]").blameless);
    EXPECT_TRUE(judged("[silent b2]").blameless);
}

TEST(Judge, OnlyLostNodesAreCharged) {
    EXPECT_EQ(judged("[lost b] left c").lost, std::vector<std::string>{"b"});
    EXPECT_EQ(judged("[left c]").lost, std::vector<std::string>{});
}

TEST(Judge, ConsequencesOfAPlannedDepartureAreNotCharged) {
    EXPECT_EQ(judged("[crash b2]", true).charge, Charged::none);
    ASSERT_TRUE(judged("[final b2]", true).failure.has_value());
}

// ---- The limit on broken links.

Evidence break_between(std::size_t rank, std::size_t peer) {
    return {{},
            Evidence::LinkBroken{"a",
                                 {static_cast<std::uint32_t>(rank), "a",
                                  static_cast<std::uint32_t>(peer), "b", false, "closed it"}}};
}

TEST(EvidenceLog, BrokenLinksBeyondTheLimitAreNotKept) {
    constexpr std::size_t kFirstPeer = 1'000'000;
    EvidenceLog log;
    for (std::size_t i = 0; i < EvidenceLog::kLinksMax; ++i) {
        ASSERT_TRUE(log.add(break_between(i, kFirstPeer + i)));
    }
    EXPECT_FALSE(log.add(break_between(kFirstPeer, 0)));
    EXPECT_FALSE(log.add(break_between(0, kFirstPeer)));
    EXPECT_EQ(log.entries().size(), EvidenceLog::kLinksMax);
    EXPECT_FALSE(log.decisive());
    EXPECT_TRUE(log.add(evidence("crash", "b2")));
    EXPECT_EQ(log.decisive(), EvidenceLog::kLinksMax);
}

}  // namespace
}  // namespace regroup::rendezvous
