// SPDX-License-Identifier: Apache-2.0
//
// A restart in which the next workers start while the last ones are still ending.
#include <csignal>
#include <filesystem>
#include <fstream>

#include "tests/e2e/end_to_end.h"

namespace regroup::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Key;
using ::testing::Not;
using ::testing::Pair;
using ::testing::SizeIs;

// Rank 1 fails when it is let go; rank 0 then takes its time to save.
const Words kFirstRound{"round=1,rank=0?save_on_term=disk", "round=1,rank=1?mark=up",
                        "round=1,rank=1?await=failure", "round=1,rank=1?raise=11"};
const Words kSecondRound{"mark=second", "await=end"};

class RunOverlap : public EndToEnd {
   protected:
    void fail_once(const Program& job) const {
        ASSERT_THAT(await_marks("training", 1), SizeIs(1)) << job.output();
        ASSERT_THAT(await_marks("up", 1), SizeIs(1)) << job.output();
        release("failure");
        ASSERT_THAT(await_marks("saving", 1), SizeIs(1)) << job.output();
    }
    [[nodiscard]] std::string file(const std::string& name) const {
        return read_file(folder() + "/runs/job/" + name);
    }
    const Words flags_{"--log-dir=runs", "--rdzv-id=job", "--standalone", "--nproc-per-node=2",
                       "--max-restarts=3"};
    const Words overlap_ = flags_ + Words{"--overlap-restart"};
};

TEST_F(RunOverlap, WithTheFlagTheNextRoundRunsBeforeTheLastOneHasEnded) {
    Program job = run_probe(overlap_, kFirstRound + kSecondRound);
    fail_once(job);
    ASSERT_THAT(await_marks("second", 2, 2), SizeIs(2)) << job.output();
    EXPECT_THAT(mark("saved", 1), IsEmpty()) << "the new ones must not have waited for this";
    EXPECT_THAT(job.output(),
                HasSubstr("the next workers start while 1 worker of round 1 is still ending"));
    release("disk");
    // It is heard to the end, under its own round.
    EXPECT_TRUE(job.prints("saved in round 1")) << job.output();
    EXPECT_TRUE(eventually([&] {
        return file("round_1/rank00000.out").find("saved in round 1\n") != std::string::npos;
    }));
    EXPECT_THAT(file("round_2/rank00000.out"), Not(HasSubstr("saved")));
    release("end");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), Not(HasSubstr("rank 0 on")));
}

TEST_F(RunOverlap, WithoutTheFlagTheNextRoundBeginsAfterTheLastEnd) {
    Program job = run_probe(flags_, kFirstRound + kSecondRound);
    fail_once(job);
    release("disk");
    ASSERT_THAT(await_marks("second", 2, 2), SizeIs(2)) << job.output();
    release("end");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_LT(job.output().find("saved in round 1"), job.output().find("round 2: "))
        << job.output();
}

TEST_F(RunOverlap, WhoResistsIsKilledInItsTimeAndNothingElseIs) {
    Program job = run_probe(overlap_ + Words{"--shutdown-timeout=5"}, kFirstRound + kSecondRound);
    fail_once(job);
    const pid_t old = pid_of(mark("saving", 1));
    EXPECT_TRUE(job.prints("killing the workers of round 1 that have not ended in time"))
        << job.output();
    EXPECT_TRUE(eventually([&] { return !is_alive(old); }));
    ASSERT_THAT(await_marks("second", 2, 2), SizeIs(2)) << job.output();
    release("end");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_THAT(job.output(), Not(HasSubstr("round 3")));
}

TEST_F(RunOverlap, TheLauncherEndsWithNobodyLeftOfAnyGeneration) {
    Program job = run_probe(overlap_, kFirstRound + kSecondRound);
    fail_once(job);
    ASSERT_THAT(await_marks("second", 2, 2), SizeIs(2)) << job.output();
    const pid_t old = pid_of(mark("saving", 1));
    job.signal(SIGTERM);
    EXPECT_TRUE(eventually([&] {
        return !is_alive(pid_of(mark("second", 2, 0))) && !is_alive(pid_of(mark("second", 2, 1)));
    }));
    EXPECT_TRUE(is_alive(old)) << "it was asked for in the same way, and has its time";
    EXPECT_TRUE(job.running());
    release("disk");
    EXPECT_EQ(job.wait(), 128 + SIGTERM) << job.output();
    EXPECT_THAT(mark("saved", 1), Not(IsEmpty()));
    EXPECT_THAT(job.family(), IsEmpty());
}

TEST_F(RunOverlap, WithoutMemoryForBothTheNewOnesWaitAndItIsSaid) {
    Program trial({{"/bin/sh", "-c", "unshare -rm mount --bind /proc/stat /proc/meminfo"}, {}, ""});
    if (trial.wait() != 0) {
        GTEST_SKIP() << "needs mount namespaces: " << trial.output();
    }
    const std::string figures = folder() + "/meminfo";
    std::ofstream(figures) << "MemTotal: 8000000 kB\nMemAvailable: 1024 kB\n";
    Program job({Words{"/bin/sh", "-c",
                       "exec unshare -rm /bin/sh -c 'mount --bind \"$0\" /proc/meminfo && exec "
                       "\"$@\"' \"$0\" \"$@\"",
                       figures, regroup_program(), "run"} +
                     overlap_ + Words{probe_program()} + kFirstRound + kSecondRound,
                 Words{"PROBE_DIR=" + folder()}, folder()});
    fail_once(job);
    EXPECT_TRUE(job.prints("the new workers wait for the old ones: they hold ")) << job.output();
    EXPECT_TRUE(job.prints(" and 1 MiB are free\n")) << job.output();
    release("disk");
    ASSERT_THAT(await_marks("second", 2, 2), SizeIs(2)) << job.output();
    release("end");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_LT(job.output().find("saved in round 1"), job.output().find("round 2: "))
        << job.output();
}

// ---- Programs with the SDK, without any flag: the new ones wait for their places.

TEST_F(RunOverlap, ProgramsWithTheSdkStartAheadAndGetTheirPlacesWhenTheLastHasEnded) {
    Program job = run_probe(flags_, Words{"say=starting", "attach"} + kFirstRound + kSecondRound);
    fail_once(job);
    EXPECT_TRUE(job.prints(":next0] starting\n")) << job.output();
    EXPECT_TRUE(job.prints(":next1] starting\n")) << job.output();
    release("disk");
    ASSERT_THAT(await_marks("second", 2, 2), SizeIs(2)) << job.output();
    EXPECT_THAT(marks("second"), SizeIs(1));
    // They lack no variable that one has which was started for its round.
    const Mark place = mark("second", 2, 1);
    for (const auto& [name, value] : mark("up", 1, 1)) {
        EXPECT_THAT(place, Contains(Key(name)));
    }
    EXPECT_THAT(place, Contains(Pair("ROLE_RANK", "1")));
    EXPECT_THAT(place, Contains(Pair("ROLE_WORLD_SIZE", "2")));
    release("end");
    EXPECT_EQ(job.wait(), 0) << job.output();
    EXPECT_LT(job.output().find("saved in round 1"), job.output().find("round 2: "))
        << job.output();
}

TEST_F(RunOverlap, AWorkerThatIsNotGoingToRunIsNotStartedAhead) {
    const Words last{"--standalone", "--nproc-per-node=2", "--max-restarts=0"};
    Program job = run_probe(last, Words{"say=starting", "attach"} + kFirstRound);
    fail_once(job);
    release("disk");
    EXPECT_EQ(job.wait(), 128 + SIGSEGV) << job.output();
    EXPECT_THAT(job.output(), Not(HasSubstr("next")));
}

}  // namespace
}  // namespace regroup::testing
