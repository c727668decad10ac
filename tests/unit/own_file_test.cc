// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/files/own_file.h"

#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::files {
namespace {

namespace fs = std::filesystem;

constexpr int kAppend = O_WRONLY | O_CREAT | O_APPEND;
constexpr mode_t kTmp = 01777;
constexpr uid_t kOther = 12345;

class OwnFile : public ::testing::Test {
   protected:
    OwnFile() { put(secret(), "secret\n"); }

    [[nodiscard]] fs::path secret() const { return fs::path(folder_.path()) / "secret"; }

    /// A folder for others, such as /tmp.
    [[nodiscard]] fs::path shared(mode_t mode) const {
        const fs::path path = fs::path(folder_.path()) / "shared";
        fs::create_directory(path);
        EXPECT_EQ(::chmod(path.c_str(), mode), 0);
        return path;
    }

    static void put(const fs::path& path, const std::string& text) { std::ofstream(path) << text; }

    static bool give_away(const fs::path& path) {
        return ::lchown(path.c_str(), kOther, kOther) == 0;
    }

    /// Empty for success, else the reason.
    static std::string opened(const fs::path& path, int flags = kAppend) {
        const Result<UniqueFd> file = open_own(path, flags);
        if (!file) {
            return file.error().detail;
        }
        EXPECT_EQ(::write(file->get(), "more\n", 5), 5);
        return "";
    }

   private:
    const testing::TemporaryDirectory folder_;
};

TEST_F(OwnFile, NewFileIsMadeForThisProcessAlone) {
    const fs::path path = shared(kTmp) / "new";
    const Result<UniqueFd> file = open_own(path, kAppend, 0600);
    ASSERT_TRUE(file) << file.error().detail;
    struct stat facts{};
    ASSERT_EQ(::fstat(file->get(), &facts), 0);
    EXPECT_EQ(facts.st_mode & 0777U, 0600U);
    EXPECT_NE(::fcntl(file->get(), F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_EQ(::fcntl(file->get(), F_GETFL) & O_NONBLOCK, 0);
    EXPECT_EQ(opened(path), "") << "again";
}

TEST_F(OwnFile, LinkOfAnotherUserInAFolderOfAllUsersIsNotFollowed) {
    for (const mode_t mode : {kTmp, mode_t{0777}}) {
        const fs::path link = shared(mode) / "link";
        fs::create_symlink(secret(), link);
        if (!give_away(link)) {
            GTEST_SKIP() << "only root can make a link of another user";
        }
        EXPECT_THAT(opened(link), HasSubstr("symbolic link"));
        EXPECT_THAT(opened(link, O_WRONLY | O_TRUNC), HasSubstr("symbolic link"));
        fs::remove(link);
    }
    EXPECT_EQ(testing::read_file(secret()), "secret\n");
}

TEST_F(OwnFile, LinkInAFolderOfThisUserIsFollowed) {
    const fs::path link = shared(0755) / "link";
    fs::create_symlink(secret(), link);
    EXPECT_EQ(opened(link), "");
    EXPECT_EQ(testing::read_file(secret()), "secret\nmore\n");
}

// So does Kubernetes mount secrets.
TEST_F(OwnFile, LinkOfThisUserInAFolderOfAllUsersIsFollowed) {
    const fs::path data = shared(kTmp) / "..data";
    fs::create_directory(data);
    put(data / "token", "");
    fs::create_symlink("..data/token", shared(kTmp) / "token");
    EXPECT_EQ(opened(shared(kTmp) / "token"), "");
    EXPECT_EQ(testing::read_file(data / "token"), "more\n");
}

TEST_F(OwnFile, PipeDoesNotBlock) {
    const fs::path pipe = shared(kTmp) / "pipe";
    ASSERT_EQ(::mkfifo(pipe.c_str(), 0666), 0);
    for (const int flags : {kAppend, O_RDONLY, O_RDWR | O_CREAT}) {
        EXPECT_EQ(opened(pipe, flags), "it is no regular file");
    }
}

TEST_F(OwnFile, HardLinkInAStickyFolderIsNotEmptied) {
    const fs::path link = shared(kTmp) / "link";
    fs::create_hard_link(secret(), link);
    EXPECT_THAT(opened(link, O_WRONLY | O_TRUNC), HasSubstr("hard link"));
    EXPECT_EQ(testing::read_file(secret()), "secret\n");
}

TEST_F(OwnFile, FileOfAnotherUserInAStickyFolderIsNotUsed) {
    const fs::path file = shared(kTmp) / "file";
    put(file, "");
    if (!give_away(file)) {
        GTEST_SKIP() << "only root can make a file of another user";
    }
    EXPECT_THAT(opened(file), HasSubstr("belongs to another user (uid 12345)"));
    EXPECT_EQ(::chmod(file.parent_path().c_str(), 0775), 0);
    EXPECT_EQ(opened(file), "") << "users of a group may share a folder";
}

TEST_F(OwnFile, TruncationEmptiesTheFile) {
    const fs::path file = shared(0755) / "file";
    put(file, "a longer text");
    EXPECT_EQ(opened(file, O_WRONLY | O_CREAT | O_TRUNC), "");
    EXPECT_EQ(testing::read_file(file), "more\n");
}

TEST_F(OwnFile, FoldersAreMadeWithTheirParents) {
    const fs::path path = shared(kTmp) / "a" / "b";
    EXPECT_TRUE(make_own_folder(path.string() + "/", 0700));
    EXPECT_EQ(fs::status(path).permissions(), fs::perms::owner_all);
    EXPECT_TRUE(make_own_folder(path)) << "again";
    put(path / "file", "");
    EXPECT_EQ(make_own_folder(path / "file").error().detail, "Not a directory");
}

TEST_F(OwnFile, LinkOfThisUserToAFolderIsFollowed) {
    const fs::path runs = shared(kTmp) / "runs";
    const fs::path disk = shared(kTmp) / "disk";
    fs::create_directory(disk);
    fs::create_symlink(disk, runs);
    EXPECT_TRUE(make_own_folder(runs));
    EXPECT_TRUE(make_own_folder(runs / "job"));
    EXPECT_TRUE(fs::exists(disk / "job"));
}

TEST_F(OwnFile, FolderThatAnotherUserHasPutThereIsNotUsed) {
    const fs::path runs = shared(kTmp) / "runs";
    fs::create_directory(runs);
    if (!give_away(runs)) {
        GTEST_SKIP() << "only root can make a folder of another user";
    }
    EXPECT_THAT(make_own_folder(runs).error().detail, HasSubstr("belongs to another user"));
    const fs::path link = shared(kTmp) / "link";
    fs::create_symlink(secret().parent_path(), link);
    ASSERT_TRUE(give_away(link));
    EXPECT_THAT(make_own_folder(link).error().detail, HasSubstr("symbolic link"));
}

/// A folder with a link to another folder in it, and the path of a file behind the link.
class OwnFilePath : public OwnFile {
   protected:
    OwnFilePath() { fs::create_directory(target()); }

    [[nodiscard]] fs::path target() const { return secret().parent_path() / "target"; }
    [[nodiscard]] fs::path link_in(mode_t mode) const {
        fs::path link = shared(mode) / "logs";
        fs::remove(link);
        fs::create_directory_symlink(target(), link);
        return link;
    }
    [[nodiscard]] bool is_reached(const fs::path& link) const {
        fs::remove_all(target() / "sub");
        fs::remove(target() / "file");
        const auto made = static_cast<bool>(make_own_folder(link / "sub" / "job"));
        EXPECT_EQ(fs::exists(target() / "sub"), made);
        const bool written = opened(link / "file").empty();
        EXPECT_EQ(fs::exists(target() / "file"), written);
        EXPECT_EQ(made, written);
        return made;
    }
};

TEST_F(OwnFilePath, LinkOfThisUserIsFollowedOnTheWay) {
    for (const mode_t mode : {mode_t{0755}, mode_t{0775}, mode_t{0777}, kTmp}) {
        EXPECT_TRUE(is_reached(link_in(mode))) << mode;
    }
}

TEST_F(OwnFilePath, LinkOfAnotherUserOnTheWayIsFollowedNowhereThatOthersWrite) {
    for (const mode_t mode : {mode_t{0775}, mode_t{02775}, mode_t{0777}, kTmp, mode_t{01775}}) {
        const fs::path link = link_in(mode);
        if (!give_away(link)) {
            GTEST_SKIP() << "only root can make a link of another user";
        }
        EXPECT_FALSE(is_reached(link)) << mode;
        EXPECT_THAT(opened(link / "file"), AllOf(HasSubstr(link.string() + " "),
                                                 HasSubstr("symbolic link of another user")));
    }
}

TEST_F(OwnFilePath, LinkOfAnotherUserAtTheEndIsNotFollowedInAFolderOfAGroup) {
    const fs::path link = shared(0775) / "link";
    fs::create_symlink(secret(), link);
    EXPECT_EQ(opened(link), "") << "it is this user's own";
    if (!give_away(link)) {
        GTEST_SKIP() << "only root can make a link of another user";
    }
    EXPECT_THAT(opened(link), HasSubstr("symbolic link of another user"));
    EXPECT_THAT(opened(link, O_WRONLY | O_TRUNC), HasSubstr("symbolic link of another user"));
    EXPECT_EQ(testing::read_file(secret()), "secret\nmore\n");
}

// The link at the end of a followed link is looked at, too.
TEST_F(OwnFilePath, LinkThatLeadsToALinkOfAnotherUserIsNotFollowed) {
    const fs::path foreign = link_in(0775);
    const fs::path own = secret().parent_path() / "own";
    fs::create_directory_symlink(foreign, own);
    EXPECT_TRUE(is_reached(own));
    if (!give_away(foreign)) {
        GTEST_SKIP() << "only root can make a link of another user";
    }
    EXPECT_FALSE(is_reached(own));
}

TEST_F(OwnFilePath, LinkOfAFoldersOwnerIsFollowedIfTheUserNamedTheFolder) {
    for (const bool is_planted : {false, true}) {
        const fs::path home = shared(is_planted ? kTmp : mode_t{0755}) / "home";
        fs::remove_all(home);
        fs::create_directory(home);
        const fs::path link = home / "logs";
        fs::create_directory_symlink(target(), link);
        if (!give_away(home) || !give_away(link)) {
            GTEST_SKIP() << "only root can make a folder of another user";
        }
        EXPECT_EQ(is_reached(link), !is_planted);
    }
}

TEST_F(OwnFilePath, WayMayGoUpAndByRelativeLinks) {
    const fs::path folder = shared(0755);
    fs::create_directory_symlink("../target", folder / "relative");
    EXPECT_TRUE(is_reached(folder / ".." / "shared" / "." / "relative"));
    fs::create_symlink("loop", folder / "loop");
    EXPECT_NE(opened(folder / "loop"), "");
    EXPECT_NE(opened(folder / "loop" / "file"), "");
    EXPECT_FALSE(make_own_folder(folder / "loop" / "sub"));
}

TEST_F(OwnFilePath, DescriptorsOfThisProcessCanBeNamed) {
    const int fd = ::open(secret().c_str(), O_RDONLY | O_CLOEXEC);
    ASSERT_GE(fd, 0);
    EXPECT_EQ(opened("/proc/self/fd/" + std::to_string(fd)), "");
    ::close(fd);
    EXPECT_EQ(testing::read_file(secret()), "secret\nmore\n");
}

}  // namespace
}  // namespace regroup::files
