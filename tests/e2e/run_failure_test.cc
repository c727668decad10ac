// SPDX-License-Identifier: Apache-2.0
//
// Failing workers: the report, the exit code of the launcher, and the restart budget.
#include <array>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <set>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunFailure : public EndToEnd {};

// The report at the end of a failed job's output, from its verdict on.
std::string final_report(const Program& program) {
    const std::string output = program.output();
    const std::size_t verdict = output.rfind("regroup: job ");
    return verdict == std::string::npos ? "(no report in: " + output + ")" : output.substr(verdict);
}

std::string host_name() {
    std::array<char, 256> name{};
    ::gethostname(name.data(), name.size() - 1);
    const std::string text = name.data();
    return text.substr(0, text.find('.'));
}

// Rank 5 crashes; the others wait for it in a barrier, lose it, and abort.
const Words kCrashOfRankFive{"join",
                             "mark=up",
                             "rank=5?complain=a word before the last",
                             "rank=5?complain=the last word of rank 5",
                             "rank=5?raise=11",
                             "barrier",
                             "hold"};

void expect_report_of_rank_five(const Program& program, pid_t pid) {
    const std::string report = final_report(program);
    EXPECT_THAT(report,
                saying("failed: rank 5 on ", "\n  rank       5 ", "SIGSEGV",
                       "pid " + std::to_string(pid) + "\n", "host       " + host_name() + ",",
                       "    a word before the last\n    the last word of rank 5\n"));
    // No other rank is reported.
    EXPECT_EQ(report.find("\n  rank "), report.rfind("\n  rank ")) << report;
    EXPECT_THAT(report, Not(HasSubstr("SIGABRT")));
}

TEST_F(RunFailure, FirstCrashIsReportedAsTheCause) {
    Program job = run_probe({"--nproc-per-node=8"}, kCrashOfRankFive);
    EXPECT_EQ(job.wait(), 128 + SIGSEGV) << job.output();
    expect_report_of_rank_five(job, pid_of(mark("up", 1, 5)));
}

TEST_F(RunFailure, CrashIsReportedAlikeOnTheOtherNode) {
    const Rendezvous rendezvous;
    const Words flags{"--nproc-per-node=4"};
    Program first = run_probe(node(1, "2", rendezvous.endpoint()) + flags, kCrashOfRankFive);
    Program second = run_probe(node(2, "2", rendezvous.endpoint()) + flags, kCrashOfRankFive);
    EXPECT_EQ(first.wait(), 128 + SIGSEGV) << first.output();
    EXPECT_EQ(second.wait(), 128 + SIGSEGV) << second.output();
    const pid_t pid = pid_of(mark("up", 1, 5));
    expect_report_of_rank_five(first, pid);
    expect_report_of_rank_five(second, pid);
    EXPECT_THAT(final_report(first), HasSubstr("(local rank 1 on node 127.0.0.3)"));
}

TEST_F(RunFailure, ExitCodeNineIsNotSigkill) {
    Program code = run_probe({}, {"exit=9"});
    EXPECT_EQ(code.wait(), 9) << code.output();
    EXPECT_EQ(code.ended_by(), 0);
    EXPECT_THAT(final_report(code), HasSubstr("exited with code 9"));

    Program killed = run_probe({}, {"raise=9"});
    EXPECT_EQ(killed.wait(), 128 + SIGKILL) << killed.output();
    EXPECT_EQ(killed.ended_by(), 0);
    EXPECT_THAT(final_report(killed), HasSubstr("ended by SIGKILL"));
}

TEST_F(RunFailure, RanksThatWereStoppedAreNoFailures) {
    // One worker dies of SIGTERM, one answers it with an error, one must be killed.
    Program job = run_probe({"--nproc-per-node=4", "--shutdown-timeout=1"},
                            {"rank=1?exit_on_term=1", "rank=3?ignore=15", "mark=up", "await=go",
                             "rank=2?exit=7", "hold"});
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << job.output();
    release("go");
    EXPECT_EQ(job.wait(), 7) << job.output();
    EXPECT_THAT(final_report(job), HasSubstr("rank 2 on " + host_name() + " exited with code 7"));
    for (const char* other : {"rank 0 on", "rank 1 on", "rank 3 on", "SIGTERM", "SIGKILL"}) {
        EXPECT_THAT(job.output(), Not(HasSubstr(other)));
    }
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunFailure, FirstOfSeveralFailuresGivesTheExitCode) {
    const Rendezvous rendezvous;
    const Words steps{"rank=0?exit_on_term=4", "mark=up", "rank=1?await=go", "rank=1?exit=3",
                      "hold"};
    Program first = run_probe(node(1, "2", rendezvous.endpoint()), steps);
    Program second = run_probe(node(2, "2", rendezvous.endpoint()), steps);
    ASSERT_THAT(await_marks("up", 2), SizeIs(2)) << first.output();
    release("go");
    EXPECT_EQ(first.wait(), 3) << first.output();
    EXPECT_EQ(second.wait(), 3) << second.output();
}

TEST_F(RunFailure, NextRoundBeginsAfterTheLastWorkerHasEnded) {
    Program job = run_probe({"--nproc-per-node=2", "--max-restarts=1"},
                            {"round=1,rank=0?save_on_term=disk", "round=1,rank=1?mark=up",
                             "round=1,rank=1?await=go", "round=1,rank=1?raise=11", "mark=second"});
    ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
    ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
    release("go");
    ASSERT_THAT(await_marks("saving", 1), SizeIs(1)) << job.output();
    release("disk");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_LT(job.output().find("saved in round 1"), job.output().find("round 2: "))
        << job.output();
}

TEST_F(RunFailure, JobSucceedsWithinItsRestartBudget) {
    const Rendezvous rendezvous;
    const Words flags{"--nproc-per-node=2", "--max-restarts=2"};
    const Words steps{"join",
                      "barrier",
                      "mark=up",
                      "rank=1,restart=0?await=first",
                      "rank=1,restart=0?exit=5",
                      "rank=3,restart=1?await=second",
                      "rank=3,restart=1?raise=11",
                      "restart=0?hold",
                      "restart=1?hold"};
    Program first = run_probe(node(1, "2", rendezvous.endpoint()) + flags, steps);
    Program second = run_probe(node(2, "2", rendezvous.endpoint()) + flags, steps);
    ASSERT_THAT(await_marks("up", 4), SizeIs(4)) << first.output() << second.output();
    release("first");
    ASSERT_THAT(await_marks("up", 4, 2), SizeIs(4)) << first.output() << second.output();
    release("second");
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    const auto rounds = marks("up");
    ASSERT_THAT(rounds, SizeIs(3));
    std::set<std::string> ports;
    int restarts = 0;
    for (const auto& [round, ranks] : rounds) {
        for (const auto& [rank, mark] : ranks) {
            SCOPED_TRACE("round " + std::to_string(round) + ", rank " + std::to_string(rank));
            EXPECT_EQ(mark.at("TORCHELASTIC_RESTART_COUNT"), std::to_string(restarts));
            EXPECT_EQ(mark.at("TORCHELASTIC_MAX_RESTARTS"), "2");
            EXPECT_EQ(mark.at("GROUP_RANK"), rank < 2 ? "0" : "1");
            ports.insert(mark.at("MASTER_PORT"));
        }
        ++restarts;
    }
    // Every round has a store of its own.
    EXPECT_THAT(ports, SizeIs(3));
    // Each failure is reported in full on its own node, and in one line elsewhere.
    EXPECT_THAT(first.output(), saying("  end        exited with code 5\n",
                                       "rank 3 on 127.0.0.3 was ended by SIGSEGV"));
    EXPECT_THAT(second.output(),
                saying("  end        ended by SIGSEGV", "rank 1 on 127.0.0.2 exited with code 5"));
}

TEST_F(RunFailure, RestartBudgetIsSharedByTheWholeJob) {
    const Rendezvous rendezvous;
    const Words flags{"--max-restarts=1"};
    // Each node fails once.
    const Words steps{"rank=0,restart=0?exit=5", "rank=1,restart=1?exit=6", "hold"};
    Program first = run_probe(node(1, "2", rendezvous.endpoint()) + flags, steps);
    Program second = run_probe(node(2, "2", rendezvous.endpoint()) + flags, steps);
    EXPECT_EQ(first.wait(), 6) << first.output();
    EXPECT_EQ(second.wait(), 6) << second.output();
    EXPECT_THAT(final_report(first), HasSubstr("--max-restarts 1"));
    EXPECT_THAT(final_report(second), HasSubstr("--max-restarts 1"));
}

TEST_F(RunFailure, NodesOfAStaticJobRestartTogether) {
    const std::string port = std::to_string(unused_port());
    const auto flags = [&](const std::string& rank) {
        return Words{"--nnodes=2", "--node-rank=" + rank, "--master-addr=127.0.0.1",
                     "--master-port=" + port, "--max-restarts=1"};
    };
    const Words steps{"mark=up", "rank=1,restart=0?exit=5", "restart=0?hold"};
    Program first = run_probe(flags("0"), steps);
    Program second = run_probe(flags("1"), steps);
    EXPECT_EQ(first.wait(), 0) << first.output();
    EXPECT_EQ(second.wait(), 0) << second.output();
    EXPECT_THAT(marks("up")[2], SizeIs(2));
}

TEST_F(RunFailure, ProgramThatCannotBeStartedAgainIsReported) {
    const std::string script = folder() + "/once";
    std::ofstream(script) << "#!/bin/sh\nrm \"$0\"\nexit 1\n";
    std::filesystem::permissions(script, std::filesystem::perms::owner_all);
    Program job = run({"--max-restarts=1", script});
    EXPECT_EQ(job.wait(), 127) << job.output();
    EXPECT_THAT(final_report(job), saying("could not start", script, "No such file or directory"));
    EXPECT_THAT(job.output(), Not(HasSubstr("pid 0")));
}

// Rank 3 ends first, because the others have ended the group. They had waited for rank 2.
TEST_F(RunFailure, RankThatWasLeftAloneIsNotTheRootCause) {
    Program job = run({"--standalone", "--nproc-per-node=4", elastic_probe_program(), "late"});
    EXPECT_EQ(job.wait(), 1) << job.output();
    EXPECT_THAT(final_report(job), ContainsRegex("\n  rank       [01] ")) << job.output();
    EXPECT_THAT(final_report(job), HasSubstr("rank 2"));
}

}  // namespace
}  // namespace regroup::testing
