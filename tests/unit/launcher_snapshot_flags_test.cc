// SPDX-License-Identifier: Apache-2.0
//
// The flags that say where and how often snapshots are kept.
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "launcher/run_plan.h"
#include "tests/support/matchers.h"
#include "tests/support/temporary_directory.h"

namespace regroup::launcher {
namespace {

class SnapshotFlags : public ::testing::Test {
   protected:
    static Result<RunPlan> plan_of(std::vector<std::string> flags) {
        flags.insert(flags.end(), {"--log-dir=/dev/null", "/bin/true"});
        const auto parsed = parse_run_flags(Front::run, flags);
        return parsed ? make_run_plan(std::get<RunFlags>(*parsed)) : parsed.error();
    }
    static std::string complaint_about(const std::string& flag) {
        const Result<RunPlan> plan = plan_of({flag});
        return plan ? "none" : plan.error().detail;
    }
    testing::TemporaryDirectory scratch_;
};

TEST_F(SnapshotFlags, GoToTheAgentAndTheFolderToTheWorkers) {
    const std::string folder = scratch_.path() + "/a/../snapshots";
    const auto plan =
        plan_of({"--snapshot-dir=" + folder, "--snapshot-memory=2G", "--snapshot-interval=0.5"});
    ASSERT_TRUE(plan) << plan.error().detail;
    const agent::SnapshotOptions& snapshots = plan->agent.snapshots;
    EXPECT_EQ(snapshots.folder, scratch_.path() + "/snapshots");
    EXPECT_TRUE(std::filesystem::is_directory(snapshots.folder));
    EXPECT_EQ(snapshots.memory_max, std::uint64_t{2} << 30U);
    EXPECT_EQ(snapshots.interval, std::chrono::milliseconds(500));
    EXPECT_THAT(plan->agent.group.command.environment,
                Contains("REGROUP_SNAPSHOT_DIR=" + snapshots.folder.string()));
}

TEST_F(SnapshotFlags, WithoutThemThereIsNoFolderAndNoLimit) {
    const auto plan = plan_of({});
    ASSERT_TRUE(plan);
    EXPECT_TRUE(plan->agent.snapshots.folder.empty());
    EXPECT_EQ(plan->agent.snapshots.memory_max, std::nullopt);
    EXPECT_EQ(plan->agent.snapshots.interval, std::chrono::minutes(10));
}

TEST_F(SnapshotFlags, MistakesAreNamed) {
    EXPECT_THAT(complaint_about("--snapshot-memory=0"), saying("--snapshot-memory", "above 0"));
    EXPECT_THAT(complaint_about("--snapshot-memory=lots"), saying("--snapshot-memory", "100M"));
    EXPECT_THAT(complaint_about("--snapshot-interval=-1"), HasSubstr("--snapshot-interval"));
    EXPECT_THAT(complaint_about("--snapshot-dir="), saying("--snapshot-dir", "empty"));
    std::ofstream(scratch_ / "file") << "x";
    const std::string inside = scratch_.path() + "/file/folder";
    EXPECT_THAT(complaint_about("--snapshot-dir=" + inside),
                saying("--snapshot-dir " + inside, "cannot be used", "Not a directory"));
}

}  // namespace
}  // namespace regroup::launcher
