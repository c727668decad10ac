// SPDX-License-Identifier: Apache-2.0

#include "journal_stories.h"
#include "rendezvous/journal/replay.h"
#include "tests/support/matchers.h"

namespace regroup::journal {
namespace {

struct Told {
    std::string text;
    Result<Replayed> result;
};

Told replayed(const StoredJob& job) {
    std::string text;
    Result<Replayed> result =
        replay(kept(job), [&](const std::string& line) { text += line + "\n"; });
    return {text, std::move(result)};
}

TEST(JournalReplay, ReplayMakesTheSameAssignmentsAndTellsWhy) {
    const Told told = replayed(regroup::testing::story_of_two_rounds().job());
    ASSERT_TRUE(told.result) << told.result.error().detail;
    EXPECT_TRUE(told.result->is_same());
    EXPECT_EQ(told.result->assignments, 4U);
    EXPECT_THAT(told.text, saying("0.000000 s  a joins with 1 worker", "-> a: assign round 1",
                                  "-> b: assign", "== training: ", "-> a: stop round 1",
                                  "assign round 2", Not(HasSubstr("DIFFERS"))));
}

TEST(JournalReplay, ReplayOfJobsReadFromLinesIsTheSame) {
    const auto jobs =
        from_lines(regroup::testing::lines_of(regroup::testing::story_of_two_rounds().job()));
    ASSERT_TRUE(jobs) << jobs.error().detail;
    const Told told = replayed(jobs->front());
    ASSERT_TRUE(told.result);
    EXPECT_TRUE(told.result->is_same());
    EXPECT_EQ(told.text, replayed(regroup::testing::story_of_two_rounds().job()).text);
}

TEST(JournalReplay, SecretsAreInNoLineAndItsReplayIsTheSame) {
    StoredJob job = regroup::testing::story_of_two_rounds().job();
    for (Entry& entry : job.entries) {
        if (auto* joined =
                entry.event ? std::get_if<rendezvous::NodeJoined>(&*entry.event) : nullptr) {
            joined->offer.secret = "5ec4e7";
            joined->offer.store_key = "70be";
        }
        for (Assigned& assigned : entry.assigned) {
            assigned.assignment.store_key = "70be";
        }
    }
    const Told told = replayed(job);
    ASSERT_TRUE(told.result);
    EXPECT_TRUE(told.result->is_same());
    const std::string lines = regroup::testing::lines_of(job);
    EXPECT_THAT(told.text + lines, AllOf(Not(HasSubstr("5ec4e7")), Not(HasSubstr("70be"))));
    const auto jobs = from_lines(lines);
    ASSERT_TRUE(jobs) << jobs.error().detail;
    EXPECT_TRUE(replayed(jobs->front()).result->is_same());
}

TEST(JournalReplay, ReplayShowsAnAssignmentThatDiffers) {
    StoredJob job = regroup::testing::story_of_two_rounds().job();
    job.entries[1].assigned[0].assignment.first_rank = 7;
    const Told told = replayed(job);
    ASSERT_TRUE(told.result);
    EXPECT_EQ(told.result->assignments, 4U);
    EXPECT_EQ(told.result->identical, 3U);
    EXPECT_THAT(told.text, HasSubstr("DIFFERS, recorded: a: assign round 1: node 0 of 2, "
                                     "ranks from 7"));
}

TEST(JournalReplay, ReplayShowsAnAssignmentThatIsMissing) {
    StoredJob job = regroup::testing::story_of_two_rounds().job();
    job.entries[1].assigned.clear();
    const Told told = replayed(job);
    ASSERT_TRUE(told.result);
    EXPECT_EQ(told.result->assignments, 4U);
    EXPECT_EQ(told.result->identical, 2U);
    EXPECT_THAT(told.text, HasSubstr("DIFFERS, recorded: nothing"));
}

TEST(JournalReplay, ReplayRefusesInvalidJobs) {
    StoredJob job = regroup::testing::story_of_two_rounds().job();
    EXPECT_FALSE(replayed({job.key, {}, false}).result);
    std::swap(job.entries[1].at, job.entries[2].at);
    EXPECT_THAT(replayed(job).result.error().detail, HasSubstr("back in time"));
    job.entries.erase(job.entries.begin(), job.entries.begin() + 2);
    EXPECT_THAT(replayed(job).result.error().detail, HasSubstr("does not begin with a node"));
}

}  // namespace
}  // namespace regroup::journal
