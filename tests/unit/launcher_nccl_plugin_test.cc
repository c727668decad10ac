// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <string>
#include <vector>

#include <gmock/gmock.h>

#include "launcher/nccl_plugin.h"
#include "tests/support/temporary_directory.h"

namespace regroup::launcher {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

constexpr const char* kLibrary = "libnccl-profiler-regroup.so";

TEST(NcclPlugin, IsFoundBesideTheLauncherAndWhereItIsInstalled) {
    const testing::TemporaryDirectory tree;
    EXPECT_EQ(find_nccl_plugin(tree / "bin"), "");
    tree.write(std::string("lib/regroup/") + kLibrary, "");
    EXPECT_EQ(find_nccl_plugin(tree / "bin"), (tree / "lib/regroup" / kLibrary).string());
    tree.write(std::string("bin/") + kLibrary, "");
    EXPECT_EQ(find_nccl_plugin(tree / "bin"), (tree / "bin" / kLibrary).string());
}

TEST(NcclPlugin, PathThatNcclWouldCutOffIsNotUsed) {
    const testing::TemporaryDirectory tree;
    const std::string folder(250, 'x');
    tree.write(folder + "/" + kLibrary, "");
    EXPECT_EQ(find_nccl_plugin(tree / folder), "");
}

TEST(NcclPlugin, ThisBuildHasOne) {
    EXPECT_NE(find_nccl_plugin(LAUNCHER_FOLDER), "");
}

TEST(NcclPlugin, WorkersGetIt) {
    std::vector<std::string> environment{"PATH=/bin"};
    std::vector<std::string> notes;
    add_nccl_plugin("/opt/plugin.so", environment, notes);
    EXPECT_THAT(environment, ElementsAre("PATH=/bin", "NCCL_PROFILER_PLUGIN=/opt/plugin.so"));
    EXPECT_THAT(notes, IsEmpty());
}

TEST(NcclPlugin, ThatOfTheUserStaysWithANote) {
    std::vector<std::string> environment{"NCCL_PROFILER_PLUGIN=mine"};
    std::vector<std::string> notes;
    add_nccl_plugin("/opt/plugin.so", environment, notes);
    EXPECT_THAT(environment, ElementsAre("NCCL_PROFILER_PLUGIN=mine"));
    EXPECT_THAT(notes, SizeIs(1));
}

TEST(NcclPlugin, UserTurnsItOffWithoutANote) {
    for (const char* const entry : {"NCCL_PROFILER_PLUGIN=none", "NCCL_PROFILER_PLUGIN="}) {
        std::vector<std::string> environment{entry};
        std::vector<std::string> notes;
        add_nccl_plugin("/opt/plugin.so", environment, notes);
        EXPECT_THAT(environment, ElementsAre(entry));
        EXPECT_THAT(notes, IsEmpty());
    }
}

TEST(NcclPlugin, ThatOfAnOuterLauncherIsReplaced) {
    std::vector<std::string> environment{
        std::string("NCCL_PROFILER_PLUGIN=/old/lib/regroup/") + kLibrary, "PATH=/bin"};
    std::vector<std::string> notes;
    add_nccl_plugin("/opt/plugin.so", environment, notes);
    EXPECT_THAT(environment, ElementsAre("PATH=/bin", "NCCL_PROFILER_PLUGIN=/opt/plugin.so"));
    EXPECT_THAT(notes, IsEmpty());
}

TEST(NcclPlugin, WithoutOneNothingChanges) {
    std::vector<std::string> environment{"NCCL_PROFILER_PLUGIN=mine"};
    std::vector<std::string> notes;
    add_nccl_plugin("", environment, notes);
    EXPECT_THAT(environment, ElementsAre("NCCL_PROFILER_PLUGIN=mine"));
    EXPECT_THAT(notes, IsEmpty());
}

}  // namespace
}  // namespace regroup::launcher
