// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/files/line_log.h"

#include <algorithm>
#include <atomic>
#include <filesystem>
#include <fstream>
#include <latch>
#include <memory>
#include <string>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <gtest/gtest.h>

#include "rendezvous/files/background.h"
#include "tests/support/failures.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::files {
namespace {

namespace fs = std::filesystem;
using Lines = std::vector<std::string>;

constexpr Duration kLimit = std::chrono::seconds(30);

Lines lines_of(const fs::path& path) {
    Lines lines;
    std::ifstream file(path);
    for (std::string line; std::getline(file, line);) {
        lines.push_back(line);
    }
    return lines;
}

class LineLogTest : public ::testing::Test {
   protected:
    [[nodiscard]] fs::path path(const std::string& name = "log") const {
        return fs::path(folder_.path()) / name;
    }
    [[nodiscard]] LineLog::Options options() const {
        LineLog::Options options;
        options.path = path();
        options.lost_line = [](std::uint64_t count) { return "lost " + std::to_string(count); };
        return options;
    }
    static std::unique_ptr<LineLog> open(LineLog::Options options) {
        Result<std::unique_ptr<LineLog>> log = LineLog::open(std::move(options));
        EXPECT_TRUE(log);
        return std::move(*log);
    }

    static Lines read(const LineLog& log) {
        Lines lines;
        log.read([&](std::string_view line) { lines.emplace_back(line); });
        return lines;
    }

   private:
    testing::TemporaryDirectory folder_;
};

TEST_F(LineLogTest, LinesAreAppendedAndOnlyTheUserMayReadThem) {
    std::ofstream(path()) << "before\n";
    fs::remove(path());
    const auto log = open(options());
    log->write("one");
    log->write("two");
    ASSERT_TRUE(log->flush(kLimit));
    EXPECT_THAT(lines_of(path()), ElementsAre("one", "two"));
    struct stat facts{};
    ASSERT_EQ(::stat(path().c_str(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U);
    open(options())->write("three");
    EXPECT_THAT(lines_of(path()), ElementsAre("one", "two", "three"));
}

TEST_F(LineLogTest, FullFileIsKeptOnceUnderAnotherName) {
    LineLog::Options small = options();
    small.bytes_max = 20;
    const auto log = open(std::move(small));
    for (const char* line : {"1234567", "2234567", "3234567", "4234567", "5234567"}) {
        log->write(line);
        ASSERT_TRUE(log->flush(kLimit));
    }
    EXPECT_THAT(lines_of(path()), ElementsAre("5234567"));
    EXPECT_THAT(lines_of(path("log.1")), ElementsAre("3234567", "4234567"));
    EXPECT_FALSE(fs::exists(path("log.2")));
}

TEST_F(LineLogTest, FileThatOthersRenameOrDeleteIsBegunAgain) {
    const auto log = open(options());
    log->write("one");
    ASSERT_TRUE(log->flush(kLimit));
    fs::rename(path(), path("taken"));
    log->write("two");
    ASSERT_TRUE(log->flush(kLimit));
    EXPECT_THAT(lines_of(path("taken")), ElementsAre("one"));
    EXPECT_THAT(lines_of(path()), ElementsAre("two"));
    fs::remove(path());
    log->write("three");
    ASSERT_TRUE(log->flush(kLimit));
    EXPECT_THAT(lines_of(path()), ElementsAre("three"));
}

TEST_F(LineLogTest, TwoWritersOfOneFileLoseNoLineWhenItIsFull) {
    LineLog::Options large = options();
    large.bytes_max = 4000;
    const auto a = open(large);
    const auto b = open(large);
    for (int i = 0; i < 100; ++i) {
        a->write("a of some length: " + std::to_string(i));
        b->write("b of some length: " + std::to_string(i));
    }
    ASSERT_TRUE(a->flush(kLimit));
    ASSERT_TRUE(b->flush(kLimit));
    EXPECT_EQ(lines_of(path()).size() + lines_of(path("log.1")).size(), 200U);
}

TEST_F(LineLogTest, NextLineAfterAFullDiskCountsTheLostOnes) {
    fs::create_symlink("/dev/full", path());
    std::atomic<int> troubles = 0;
    LineLog::Options full = options();
    full.on_trouble = [&troubles](const std::string& trouble) {
        EXPECT_THAT(trouble, HasSubstr("No space left"));
        ++troubles;
    };
    const auto log = open(std::move(full));
    for (const char* line : {"one", "two", "three"}) {
        log->write(line);
        ASSERT_TRUE(log->flush(kLimit));
    }
    EXPECT_EQ(troubles, 1);
    fs::remove(path());
    log->write("four");
    ASSERT_TRUE(log->flush(kLimit));
    EXPECT_THAT(lines_of(path()), ElementsAre("lost 3", "four"));
}

TEST_F(LineLogTest, WriterDoesNotWaitForASlowFileAndCountsWhatItLeavesOut) {
    fs::create_symlink("/dev/full", path());
    const auto reached = std::make_shared<std::latch>(1);
    const auto released = std::make_shared<std::latch>(1);
    const auto first = std::make_shared<std::atomic<bool>>(true);
    LineLog::Options slow = options();
    slow.queue_bytes_max = 10;
    slow.lost_line = [=](std::uint64_t count) {
        if (first->exchange(false)) {
            reached->count_down();
            released->wait();
        }
        return "lost " + std::to_string(count);
    };
    const auto log = open(std::move(slow));
    log->write("lost");
    ASSERT_TRUE(log->flush(kLimit));
    fs::remove(path());
    log->write("stuck");
    reached->wait();  // From now on the log's thread is busy.
    log->write("fits");
    log->write("does not");
    log->write("does not");
    released->count_down();
    ASSERT_TRUE(log->flush(kLimit));
    EXPECT_THAT(lines_of(path()), ElementsAre("lost 1", "stuck", "fits", "lost 2"));
}

TEST_F(LineLogTest, LinesOfBothFilesAreRead) {
    LineLog::Options small = options();
    small.bytes_max = 20;
    const auto log = open(std::move(small));
    EXPECT_THAT(read(*log), IsEmpty());
    for (const char* line : {"1234567", "2234567", "3234567"}) {
        log->write(line);
        ASSERT_TRUE(log->flush(kLimit));
    }
    EXPECT_THAT(read(*log), ElementsAre("1234567", "2234567", "3234567"));
}

TEST_F(LineLogTest, OnlyTheNewestBytesAreReadAndNoLongLine) {
    const std::string longest(LineLog::kLineBytesMax, 'x');
    std::ofstream(path("log.1")) << "old\n";
    fs::resize_file(path("log.1"), std::uintmax_t{1} << 40U);  // Without a block on the disk.
    std::ofstream(path("log.1"), std::ios::app) << "rest\nnew\n";
    std::ofstream(path()) << "old\n" << longest << "x\n" << longest << "\n\nlast\nhalf a line";
    LineLog::Options large = options();
    large.bytes_max = 3 * LineLog::kLineBytesMax;
    EXPECT_THAT(read(*open(std::move(large))), ElementsAre("new", "old", longest, "", "last"));
}

TEST_F(LineLogTest, PreviousFileOfAnotherUserIsAnErrorAtOnce) {
    ASSERT_EQ(::chmod(path().parent_path().c_str(), 01777), 0);
    std::ofstream(path("log.1")) << "foreign\n";
    if (::lchown(path("log.1").c_str(), 12345, 12345) != 0) {
        GTEST_SKIP() << "only root can make a file of another user";
    }
    const auto log = LineLog::open(options());
    ASSERT_FALSE(log);
    EXPECT_THAT(log.error().detail, saying(path("log.1"), "belongs to another user (uid 12345)"));
}

TEST_F(LineLogTest, PreviousFileThatIsALinkOfAnotherUserIsAnErrorAtOnce) {
    ASSERT_EQ(::chmod(path().parent_path().c_str(), 01777), 0);
    std::ofstream(path("secret")) << "secret\n";
    fs::create_symlink(path("secret"), path("log.1"));
    if (::lchown(path("log.1").c_str(), 12345, 12345) != 0) {
        GTEST_SKIP() << "only root can make a link of another user";
    }
    const auto log = LineLog::open(options());
    ASSERT_FALSE(log);
    EXPECT_THAT(log.error().detail, HasSubstr(path("log.1")));
}

TEST_F(LineLogTest, PreviousFileThatAnotherUserPutThereLaterIsNotRead) {
    const auto log = open(options());
    log->write("own");
    ASSERT_TRUE(log->flush(kLimit));
    ASSERT_EQ(::chmod(path().parent_path().c_str(), 01777), 0);
    std::ofstream(path("secret")) << "secret\n";
    fs::create_symlink(path("secret"), path("log.1"));
    if (::lchown(path("log.1").c_str(), 12345, 12345) != 0) {
        GTEST_SKIP() << "only root can make a link of another user";
    }
    EXPECT_THAT(read(*log), ElementsAre("own"));
}

TEST_F(LineLogTest, NameThatCannotBeOpenedIsAnErrorAtOnce) {
    LineLog::Options wrong = options();
    wrong.path = path("missing/log");
    EXPECT_THAT(LineLog::open(std::move(wrong)), fails("missing/log"));
}

TEST(BackgroundTest, TasksRunInOrderAndTooManyAreRefused) {
    const auto released = std::make_shared<std::latch>(1);
    const auto done = std::make_shared<std::vector<int>>();
    Background background;
    ASSERT_TRUE(background.post([released] { released->wait(); }));
    for (int i = 1; i < static_cast<int>(Background::kTasksMax); ++i) {
        ASSERT_TRUE(background.post([done, i] { done->push_back(i); }));
    }
    EXPECT_FALSE(background.post([] {}));
    EXPECT_FALSE(background.drain(std::chrono::milliseconds(1)));
    released->count_down();
    ASSERT_TRUE(background.drain(kLimit));
    EXPECT_THAT(*done, SizeIs(Background::kTasksMax - 1));
    EXPECT_TRUE(std::is_sorted(done->begin(), done->end()));
}

}  // namespace
}  // namespace regroup::files
