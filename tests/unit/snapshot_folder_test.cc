// SPDX-License-Identifier: Apache-2.0
#include <cstring>
#include <filesystem>
#include <fstream>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "rendezvous/snapshot/folder.h"
#include "rendezvous/snapshot/room.h"
#include "tests/support/temporary_directory.h"

namespace regroup::snapshot {
namespace {

namespace fs = std::filesystem;
using ::testing::ElementsAre;

class SnapshotFolder : public ::testing::Test {
   protected:
    void write(std::uint32_t part, std::uint32_t parts, std::uint64_t step) {
        const std::string text = "part " + std::to_string(part);
        const Result<void> written =
            folder_.write({"state", part, parts}, {1, 1, step}, std::as_bytes(std::span(text)));
        ASSERT_TRUE(written) << written.error().detail;
    }
    std::vector<std::uint64_t> steps() {
        std::vector<std::uint64_t> steps;
        for (const Holding& holding : folder_.list("state")) {
            if (steps.empty() || steps.back() != holding.version.step) {
                steps.push_back(holding.version.step);
            }
        }
        return steps;
    }
    bool is_indexed(std::uint64_t step) {
        return fs::exists(folder_.file_of({"state", 0, 1}, {1, 1, step}).parent_path() /
                          "snapshot.json");
    }

    testing::TemporaryDirectory scratch_;
    Folder folder_{std::filesystem::path(scratch_.path())};
};

TEST_F(SnapshotFolder, IndexComesWithTheLastPart) {
    write(1, 2, 10);
    EXPECT_FALSE(is_indexed(10));
    write(0, 2, 10);
    EXPECT_TRUE(is_indexed(10));
    ASSERT_EQ(folder_.list("state").size(), 1U);
    EXPECT_EQ(folder_.list("state").front().count, 2U);
    const auto file = MappedFile::open(folder_.file_of({"state", 1, 2}, {1, 1, 10}));
    ASSERT_TRUE(file);
    EXPECT_EQ(std::memcmp(file->bytes().data(), "part 1", 6), 0);
}

TEST_F(SnapshotFolder, TwoCompleteVersionsStay) {
    for (const std::uint64_t step : {10U, 20U, 30U}) {
        write(0, 1, step);
    }
    write(0, 2, 40);
    folder_.prune("state");
    EXPECT_THAT(steps(), ElementsAre(40, 30, 20));
}

TEST_F(SnapshotFolder, WithoutCompleteVersionsThreeStay) {
    for (const std::uint64_t step : {10U, 20U, 30U, 40U}) {
        write(1, 2, step);
    }
    folder_.prune("state");
    EXPECT_THAT(steps(), ElementsAre(40, 30, 20));
}

TEST_F(SnapshotFolder, OtherFilesAreIgnored) {
    write(0, 1, 10);
    const fs::path version = folder_.file_of({"state", 0, 1}, {1, 1, 10}).parent_path();
    std::ofstream(version / "part-00000-of-00001.safetensors.host-1.partial") << "x";
    std::ofstream(version / "part-00009-of-00002.safetensors") << "x";
    fs::create_directories(scratch_ / "state" / "notes");
    EXPECT_EQ(folder_.list("state").size(), 1U);
    EXPECT_TRUE(folder_.list("another").empty());
}

TEST_F(SnapshotFolder, FailedWriteNamesTheFileAndLeavesNothing) {
    const Folder nowhere("/proc/no/such/folder");
    const Result<void> written = nowhere.write({"state", 0, 1}, {1, 1, 1}, {});
    ASSERT_FALSE(written);
    EXPECT_THAT(written.error().detail, ::testing::HasSubstr("/proc/no/such/folder"));
}

TEST(SnapshotRoom, LaterOfTwoPublishedSlotsComesFirst) {
    const auto room = Room::create(10'000);
    ASSERT_TRUE(room) << room.error().detail;
    EXPECT_TRUE((*room)->contents().empty());
    (*room)->publish(0, {1, 1, 10}, 100);
    (*room)->publish(1, {1, 1, 20}, 200);
    const auto other = Room::map(UniqueFd(::dup((*room)->fd())));
    ASSERT_TRUE(other) << other.error().detail;
    ASSERT_EQ((*other)->contents().size(), 2U);
    EXPECT_EQ((*other)->contents()[0].version.step, 20U);
    EXPECT_EQ((*other)->find({1, 1, 10})->slot, 0U);
    (*room)->withdraw(1);
    ASSERT_EQ((*other)->contents().size(), 1U);
    (*room)->publish(1, {1, 1, 30}, 1U << 30U);  // Longer than a slot.
    EXPECT_EQ((*other)->contents().size(), 1U);
}

TEST(SnapshotRoom, OtherDescriptorsAreRefused) {
    EXPECT_FALSE(Room::map(UniqueFd(::dup(0))));
    EXPECT_FALSE(Room::create(0));
}

}  // namespace
}  // namespace regroup::snapshot
