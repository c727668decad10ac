// SPDX-License-Identifier: Apache-2.0
#include <filesystem>
#include <fstream>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/process/resolve_program.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

class ResolveProgramTest : public ::testing::Test {
   protected:
    void SetUp() override {
        std::string pattern = (fs::temp_directory_path() / "regroup-XXXXXX").string();
        ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
        root_ = fs::canonical(pattern);
        before_ = fs::current_path();
        fs::create_directories(root_ / "here" / "folder");
        fs::create_directories(root_ / "first" / "train");
        fs::create_directories(root_ / "second");
        file("here/train", 0755);
        file("here/notes", 0644);
        file("second/train", 0755);
        file("second/plain", 0644);
        fs::current_path(root_ / "here");
    }
    void TearDown() override {
        fs::current_path(before_);
        fs::remove_all(root_);
    }

    void file(const std::string& name, mode_t mode) {
        std::ofstream(root_ / name) << "#!/bin/sh\n";
        ::chmod((root_ / name).c_str(), mode);
    }

    [[nodiscard]] std::string search_path() const {
        return (root_ / "first").string() + ":" + (root_ / "second").string();
    }

    std::string resolve(const std::string& name) { return resolve(name, search_path()); }
    static std::string resolve(const std::string& name, const std::string& search_path) {
        const auto found = resolve_program(name, search_path);
        if (!found) {
            EXPECT_EQ(found.error().code, Errc::invalid_argument);
            return found.error().detail;
        }
        return *found;
    }

    fs::path root_;
    fs::path before_;
};

TEST_F(ResolveProgramTest, NameIsSearchedOnPathWithoutFolders) {
    EXPECT_EQ(resolve("train"), (root_ / "second/train").string());
}

TEST_F(ResolveProgramTest, PathIsRelativeToTheCurrentFolder) {
    EXPECT_EQ(resolve("./train"), (root_ / "here/train").string());
    EXPECT_EQ(resolve("../second/train"), (root_ / "second/train").string());
    EXPECT_EQ(resolve((root_ / "second/train").string()), (root_ / "second/train").string());
}

TEST_F(ResolveProgramTest, EmptyEntryOfPathIsTheCurrentFolder) {
    for (const char* search : {":/nowhere", "/nowhere::/nowhere", "/nowhere:"}) {
        EXPECT_EQ(resolve("train", search), (root_ / "here/train").string()) << search;
    }
}

TEST_F(ResolveProgramTest, MissingProgramGetsASuggestion) {
    EXPECT_EQ(resolve("trian"), "program 'trian' was not found on PATH");
    EXPECT_EQ(resolve("notes"), "program 'notes' was not found on PATH; did you mean ./notes?");
    EXPECT_EQ(resolve("train", "/nowhere"),
              "program 'train' was not found on PATH; did you mean ./train?");
    EXPECT_EQ(resolve("folder"), "program 'folder' was not found on PATH");
    EXPECT_EQ(resolve(""), "the name of the program is empty");
}

TEST_F(ResolveProgramTest, ProgramThatCannotRunIsRefusedWithARemedy) {
    EXPECT_EQ(resolve("./none"), "cannot run './none': No such file or directory");
    EXPECT_EQ(resolve("./train/x"), "cannot run './train/x': Not a directory");
    EXPECT_EQ(resolve("./folder"), "cannot run './folder': it is a folder");
    EXPECT_EQ(resolve("./notes"),
              "'./notes' is not executable; if it is a program, chmod +x ./notes");
    const std::string plain = (root_ / "second/plain").string();
    EXPECT_EQ(resolve("plain"),
              "'" + plain + "' is not executable; if it is a program, chmod +x " + plain);
}

TEST_F(ResolveProgramTest, ScriptWithoutItsInterpreterIsRefusedByItsName) {
    const auto refuse = [&](const std::string& text) {
        std::ofstream(root_ / "here/train") << text;
        return resolve("./train");
    };
    EXPECT_EQ(refuse("#! /nowhere/pyhton -u\n"),
              "cannot run './train': its first line names the interpreter '/nowhere/pyhton', which "
              "does not exist");
    for (const char* line : {"#!/bin/sh\r\n", "#!/usr/bin/env python3\r\n"}) {
        const std::string said = refuse(line);
        EXPECT_THAT(said, ::testing::HasSubstr("CR LF")) << line;
        EXPECT_THAT(said, ::testing::HasSubstr("sed -i 's/\\r$//' './train'")) << line;
    }
    for (const char* fine :
         {"#!/bin/sh", "#! /bin/sh -e\r\n", "#!/usr/bin/env sh\nexit\r\n", "text", "", "#"}) {
        EXPECT_EQ(refuse(fine), (root_ / "here/train").string()) << fine;
    }
}

}  // namespace
}  // namespace regroup::agent
