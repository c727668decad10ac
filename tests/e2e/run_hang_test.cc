// SPDX-License-Identifier: Apache-2.0
//
// Hanging rounds: the culprit is named, the stacks are saved, and the job continues.
#include <filesystem>
#include <fstream>
#include <memory>

#include "tests/e2e/end_to_end.h"
#include "tests/support/matchers.h"

namespace regroup::testing {
namespace {

class RunHang : public EndToEnd {
   protected:
    // Four ranks of the example on each node; its last line says whether each sample counted once.
    [[nodiscard]] std::unique_ptr<Program> start(const Words& flags, const Words& arguments) const {
        return std::make_unique<Program>(ProgramSpec{
            Words{regroup_program(), "run", "--nproc-per-node=4", "--max-restarts=1",
                  "--log-dir=runs", "--rdzv-id=job"} +
                flags + Words{ELASTIC_EXAMPLE, "--step-ms=5", "--section=work"} + arguments,
            {},
            folder()});
    }
    // The content of a file in the run's folder.
    [[nodiscard]] std::string text_of(const std::string& file) const {
        std::ifstream in(folder() + "/runs/job/" + file);
        return {std::istreambuf_iterator<char>(in), {}};
    }
};

TEST_F(RunHang, HangingRankIsNamedAndEndedAndAllStacksAreSaved) {
    Rendezvous rendezvous;
    const Words arguments{"--steps=150", "--hang-at=100", "--fail-rank=6"};
    // So that slow steps do not raise the limit.
    const Words floor{"--hang-floor=3", "--hang-factor=1"};
    auto first = start(node(0, "2", rendezvous.endpoint()) + floor, arguments);
    auto second = start(node(1, "2", rendezvous.endpoint()) + floor, arguments);
    EXPECT_EQ(first->wait(), 0) << first->output();
    EXPECT_EQ(second->wait(), 0) << second->output();
    const std::string seen = first->output() + second->output();

    // Whichever node the rank ran on.
    EXPECT_THAT(seen, ContainsRegex("rank 6 has been in step 100 for [0-9.]+ s \\(limit 3.0 s\\)"));
    EXPECT_THAT(seen, HasSubstr("every worker of its node waits"));
    EXPECT_THAT(seen, HasSubstr("killing rank 6 because the round hangs: rank 6 is stopped "
                                "at step 100, by a signal or by a debugger; the others wait for "
                                "it"));
    for (int rank = 0; rank < 8; ++rank) {
        const std::string name = "hang-round1/rank" + std::to_string(rank) + ".txt";
        const std::string text = text_of(name);
        EXPECT_THAT(text, StartsWith("job job, round 1: rank ")) << name;
        EXPECT_THAT(text, HasSubstr("\nAs the kernel sees it:\nthread ")) << name;
    }
    EXPECT_THAT(seen, HasSubstr("finished: 150 steps, 2400 samples, each once"));

    // A stopped process writes no flight record; its page says that it has not entered.
    Program explain(ProgramSpec{
        {regroup_program(), "explain", "--json", "runs/job/hang-round1"}, {}, folder()});
    EXPECT_THAT(ended(explain),
                exits(0, R"("verdict":"not_entered","culprits":[6])",
                      R"("not_entered":[6],"unknown":[])", R"("rank":6,"state":"stopped")"));

    const std::string ledger = text_of("recoveries.jsonl");
    EXPECT_EQ(std::count(ledger.begin(), ledger.end(), '\n'), 1) << ledger;
    EXPECT_THAT(
        ledger,
        HasSubstr(
            R"("round":1,"next_round":2,"planned":false,"cut_short":false,"cause":"rank 6 on )"));
    for (const Program* program : {first.get(), second.get()}) {
        EXPECT_THAT(program->output(),
                    ContainsRegex("regroup: recovered in [0-9.]+ ms: rank 6 on "));
    }
    // Printed by the node that stays until the job is closed.
    EXPECT_THAT(seen, ContainsRegex("regroup: 1 recovery took [0-9.]+ s; [0-9.]+ % of [0-9.]+ s"));
}

TEST_F(RunHang, RankThatIsFiveTimesAsSlowIsNotTakenForAHang) {
    auto job = start({"--standalone", "--hang-floor=3", "--hang-factor=2"},
                     {"--steps=60", "--slow-rank=2", "--slow-percent=400"});
    EXPECT_THAT(ended(*job), exits(0, "finished: 60 steps", Not(HasSubstr("(limit "))));
}

TEST_F(RunHang, ProgramWithoutTheSdkThatFallsSilentHangs) {
    // Without a log folder, and without a program that shows stacks.
    Program job = run({"--standalone", "--nproc-per-node=2", "--max-restarts=1", "--hang-timeout=1",
                       "--log-dir=/dev/null", "/bin/sh", "-c", "echo up; exec /bin/sleep 100"},
                      {"TMPDIR=" + folder(), "PATH=" + folder()});
    EXPECT_EQ(job.wait(), 128 + 9) << job.output();
    const std::string seen = job.output();
    EXPECT_THAT(seen, HasSubstr("the stacks of ranks 0-1 are in " + folder() + "/regroup-stacks-"));
    EXPECT_THAT(seen, HasSubstr("as the kernel sees them (neither eu-stack nor gdb is installed)"));
    EXPECT_THAT(seen, ContainsRegex("regroup: restarted in [0-9.]+ ms: rank [01] on .* was silent "
                                    "longest as its round hung, and was ended"));
    EXPECT_THAT(seen, ContainsRegex("no worker of the node has written anything for [0-9.]+ s"));
    EXPECT_THAT(seen, HasSubstr("hung, and was ended; the only restart is used"));
}

TEST_F(RunHang, LongestSilentRankIsEndedAndAStoppedRankIsNamed) {
    // Rank 2 falls silent at once, the others later. In the second round rank 1 is stopped.
    Program job = run({"--standalone", "--nproc-per-node=3", "--max-restarts=1", "--hang-timeout=2",
                       "--log-dir=" + folder(), "/bin/sh", "-c",
                       "echo up; "
                       "if [ $TORCHELASTIC_RESTART_COUNT = 1 ] && [ $RANK = 1 ]; then "
                       "kill -STOP 0; fi; "
                       "if [ $RANK != 2 ]; then sleep 1; echo still here; fi; "
                       "exec /bin/sleep 100"});
    EXPECT_EQ(job.wait(), 128 + 9) << job.output();
    const std::string seen = job.output();
    EXPECT_THAT(seen, ContainsRegex("killing rank 2 because the round hangs: no worker writes "
                                    "anything any more; rank 2 on .* has been silent longest, for "
                                    "[0-9.]+ s"));
    EXPECT_THAT(seen,
                ContainsRegex("killing rank 1 because the round hangs: rank 1 on .* is stopped, "
                              "by a signal or by a debugger"));
}

// Nobody is killed for waiting for it.
TEST_F(RunHang, RankThatHasFinishedIsTheReasonOfTheHang) {
    Program job =
        run({"--standalone", "--nproc-per-node=3", "--hang-timeout=1", "--log-dir=runs",
             "--rdzv-id=job", "/bin/sh", "-c", "[ $RANK = 1 ] && exit 0; exec /bin/sleep 100"});
    EXPECT_EQ(job.wait(), 1) << job.output();
    const std::string seen = job.output();
    EXPECT_THAT(seen, ContainsRegex("no worker of the node has written anything for [0-9.]+ s "
                                    ".*; rank 1 finished with exit code 0\n"));
    EXPECT_THAT(seen, Not(HasSubstr("killing rank")));
    EXPECT_THAT(seen, ContainsRegex("job job failed: rank 1 on .* finished with exit code 0, and "
                                    "the others did not go on without it"));
    Program explain(
        ProgramSpec{{regroup_program(), "explain", "runs/job/hang-round1"}, {}, folder()});
    EXPECT_THAT(ended(explain),
                exits(0, "Rank 1 finished with exit code 0, and the others may wait for it."));
}

// A program that writes its collectives, and knows nothing else of its agent. Nobody is killed.
class RunCollectives : public EndToEnd {
   protected:
    [[nodiscard]] std::unique_ptr<Program> start(const Words& flags, const Words& fault,
                                                 const Words& environment = {}) const {
        return std::make_unique<Program>(
            ProgramSpec{Words{regroup_program(), "run", "--standalone", "--nproc-per-node=3",
                              "--hang-floor=1", "--log-dir=runs", "--rdzv-id=job"} +
                            flags + Words{collective_probe_program(), "200"} + fault,
                        environment, folder()});
    }
    /// The job goes on hanging until it is interrupted.
    static void end(Program& job) {
        job.signal(SIGINT);
        EXPECT_TRUE(job.wait()) << job.output();
    }
};

TEST_F(RunCollectives, RankThatHasNotEnteredIsNamed) {
    const std::string missing =
        " has not entered all_reduce 40 of nccl group default_pg (4096 float32), in which ranks "
        "0, 2 wait; it is ";
    for (const auto& [fault, activity] :
         {std::pair("sleep", "asleep in nanosleep"), std::pair("stop", "stopped by a signal"),
          std::pair("loop", "running")}) {
        const auto job = start({}, {fault, "1", "40"});
        EXPECT_TRUE(job->prints(missing + activity)) << fault << job->output();
        EXPECT_THAT(job->output(), HasSubstr("round 1 hangs: rank 1 on "));
        EXPECT_TRUE(job->prints("which ranks wait for which: regroup explain "));
        EXPECT_TRUE(job->running());
        end(*job);
        EXPECT_THAT(job->output(), Not(HasSubstr("killing rank")));
        std::filesystem::remove_all(folder() + "/runs");
        std::filesystem::remove(folder() + "/arrivals0");
    }
}

TEST_F(RunCollectives, RankThatCalledSomethingElseIsNamed) {
    const auto job = start({}, {"other", "1", "40"});
    EXPECT_TRUE(
        job->prints(" called broadcast (1 float32), and the others called all_reduce 40 of "
                    "nccl group default_pg (4096 float32)"))
        << job->output();
    end(*job);
}

TEST_F(RunCollectives, RankThatHasFinishedIsNamed) {
    for (const char* const ends : {"1", "0"}) {
        const auto job =
            start({}, {"exit", "1", "40"}, {std::string("COLLECTIVE_PROBE_TELLS_ENDS=") + ends});
        EXPECT_TRUE(
            job->prints(" finished with exit code 0, and the others do not go on without it: ranks "
                        "0, 2 wait in all_reduce 40 of nccl group default_pg (4096 float32)"))
            << job->output();
        end(*job);
        std::filesystem::remove_all(folder() + "/runs");
        std::filesystem::remove(folder() + "/arrivals0");
    }
}

TEST_F(RunCollectives, RankThatComesLateIsTakenBack) {
    const auto job = start({}, {"save", "1", "40"});
    EXPECT_TRUE(job->prints("round 1 hangs: rank 1 on ")) << job->output();
    EXPECT_TRUE(job->prints("the round moves again; no longer true: "));
    EXPECT_THAT(ended(*job), exits(0, "rank 1 has made 200 steps"));
}

TEST_F(RunCollectives, HangTimeoutEndsTheCulprit) {
    const auto job = start({"--hang-timeout=3", "--max-restarts=1"}, {"sleep", "1", "40"});
    EXPECT_THAT(ended(*job), exits(0, "killing rank 1 because the round hangs: rank 1 on ",
                                   "rank 1 has made 200 steps"));
}

TEST_F(RunCollectives, RankThatLetsTheOthersWaitIsNamedAndIsAnEvent) {
    const auto job = start({"--event-log=events"}, {"slow", "1", "0"});
    EXPECT_TRUE(job->prints(" is slow: outside of collectives it spends ", std::chrono::minutes(2)))
        << job->output();
    EXPECT_THAT(job->output(), HasSubstr("regroup: rank 1 on "));
    EXPECT_TRUE(job->running());
    job->signal(SIGINT);
    job->wait();
    const std::string events = read_file(folder() + "/events");
    EXPECT_THAT(events, ContainsRegex(R"("event":"slow","round":1,.*"rank":1,"excess":)"));
    EXPECT_THAT(events, Not(HasSubstr("hanging")));
}

TEST_F(RunCollectives, JobWithoutAFaultIsNotSuspected) {
    const auto job = start({}, {});
    EXPECT_THAT(ended(*job), exits(0, Not(HasSubstr("hangs"))));
}

TEST_F(RunHang, FinishTimeoutEndsTheJobAfterTheFirstRankHasFinished) {
    Program job = run({"--standalone", "--nproc-per-node=3", "--finish-timeout=1", "--log-dir=runs",
                       "/bin/sh", "-c", "[ $RANK = 1 ] && exit 0; exec /bin/sleep 100"});
    EXPECT_THAT(ended(job), exits(124,
                                  "rank 1 finished with exit code 0, and ranks 0, 2 did not "
                                  "within 1.0 s (--finish-timeout)"));
}

}  // namespace
}  // namespace regroup::testing
