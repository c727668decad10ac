// SPDX-License-Identifier: Apache-2.0
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sys/resource.h>

#include <gtest/gtest.h>

#include "agent/output/ledger.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::agent {
namespace {

using std::chrono::microseconds;
using std::chrono::milliseconds;

class LedgerTest : public ::testing::Test {
   protected:
    [[nodiscard]] std::filesystem::path file() const { return folder_ / "recoveries.jsonl"; }
    [[nodiscard]] std::string text() const {
        std::ifstream in(file());
        return {std::istreambuf_iterator<char>(in), {}};
    }

    testing::TemporaryDirectory folder_;
};

TEST(LedgerLineTest, LineHasEveryStageInMilliseconds) {
    rendezvous::Incident incident;
    incident.round = rendezvous::RoundId{3};
    incident.next_round = rendezvous::RoundId{4};
    incident.cause = "rank 5 on b ended by SIGKILL";
    incident.decision = "standby \"d\" took slot 1";
    incident.detect = microseconds(125);
    incident.decide = milliseconds(1);
    incident.stop = milliseconds(2);
    incident.join = milliseconds(3);
    incident.communicator = milliseconds(4);
    incident.state = milliseconds(5);
    incident.first_step = milliseconds(6);
    incident.step = 41;
    incident.lost_steps = 12;
    EXPECT_EQ(
        ledger_line("j", incident, "2026-11-21T10:05:26Z"),
        R"({"time":"2026-11-21T10:05:26Z","job":"j","round":3,"next_round":4,)"
        R"("planned":false,"cut_short":false,"cause":"rank 5 on b ended by SIGKILL",)"
        R"("decision":"standby \"d\" took slot 1","step":41,"lost_steps":12,"lost_at_least":false,"total_ms":21.125,)"
        R"("detect_ms":0.125,"decide_ms":1.0,"stop_ms":2.0,"join_ms":3.0,)"
        R"("communicator_ms":4.0,"state_ms":5.0,"first_step_ms":6.0})");
}

TEST(LedgerLineTest, LineMarksARecoveryThatWasCutShort) {
    rendezvous::Incident incident;
    incident.decision = "started again on node b";
    incident.cut_short = true;
    EXPECT_THAT(ledger_line("j", incident, ""),
                HasSubstr(R"("cut_short":true,"cause":"","decision":"started again on node b",)"));
}

TEST(LedgerLineTest, InvalidUnicodeLeavesTheLineValid) {
    rendezvous::Incident incident;
    incident.cause = "rank 0 said \xff\nand more";
    EXPECT_THAT(ledger_line("j", incident, ""), HasSubstr(R"(said \ufffd\nand)"));
}

TEST_F(LedgerTest, LinesAreAppendedToAnExistingFile) {
    std::ofstream(file()) << "of an earlier run\n";
    Ledger ledger(file());
    EXPECT_TRUE(ledger.append("one"));
    EXPECT_TRUE(ledger.append("two"));
    EXPECT_EQ(text(), "of an earlier run\none\ntwo\n");
}

// A limit on the size of files stands in for a full disk.
TEST_F(LedgerTest, LineThatDoesNotFitTheDiskIsTakenBackAndLaterLinesFollow) {
    Ledger ledger(file());
    ASSERT_TRUE(ledger.append("0123456"));
    rlimit old{};
    ::getrlimit(RLIMIT_FSIZE, &old);
    const auto previous = std::signal(SIGXFSZ, SIG_IGN);
    const rlimit small{12, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &small);
    const Result<void> half = ledger.append("abcdefgh");
    const rlimit full{8, old.rlim_max};
    ::setrlimit(RLIMIT_FSIZE, &full);
    const Result<void> none = ledger.append("abcdefgh");
    ::setrlimit(RLIMIT_FSIZE, &old);
    std::signal(SIGXFSZ, previous);

    ASSERT_FALSE(half);
    EXPECT_EQ(half.error().detail, "cannot write " + file().string() + ": No space left on device");
    EXPECT_THAT(none, fails("File too large"));
    EXPECT_TRUE(ledger.append("later"));
    EXPECT_EQ(text(), "0123456\nlater\n");
}

TEST_F(LedgerTest, MissingFolderIsNamed) {
    Ledger ledger(folder_ / "gone" / "recoveries.jsonl");
    EXPECT_THAT(ledger.append("one"), fails("gone/recoveries.jsonl: No such file"));
}

}  // namespace
}  // namespace regroup::agent
