// SPDX-License-Identifier: Apache-2.0
#include <fstream>
#include <string>
#include <sys/stat.h>

#include <gtest/gtest.h>

#include "agent/output/log_reader.h"
#include "rendezvous/protocol/codec.h"
#include "tests/support/matchers.h"
#include "tests/support/program.h"

namespace regroup::agent {
namespace {

using rendezvous::LogPart;
using rendezvous::LogStream;
using rendezvous::LogWish;

class LogReader : public ::testing::Test {
   protected:
    void write(const std::string& text) {
        std::ofstream(path_, std::ios::app | std::ios::binary) << text;
    }
    [[nodiscard]] LogPart begin(std::uint32_t lines) const {
        return read_log({7, {3, LogStream::out, "", "", 0, lines}}, "a", path_);
    }
    [[nodiscard]] LogPart next(const LogPart& last) const {
        return read_log({8, {3, LogStream::out, "a", last.file, last.offset, 20}}, "a", path_);
    }

    testing::TemporaryDirectory folder_;
    std::string path_ = folder_.path() + "/rank00003.out";
};

TEST_F(LogReader, BeginsWithTheLastLines) {
    write("one\ntwo\nthree\nfour");
    EXPECT_EQ(begin(2).text, "three\nfour");
    EXPECT_EQ(begin(1).text, "four");
    EXPECT_EQ(begin(0).text, "");
    EXPECT_EQ(begin(9).text, "one\ntwo\nthree\nfour");
    write("\n");
    EXPECT_EQ(begin(2).text, "three\nfour\n");
    EXPECT_EQ(begin(2).ticket, 7U);
    EXPECT_FALSE(begin(2).more);
}

TEST_F(LogReader, GoesOnWithWhatIsNew) {
    write("one\n");
    LogPart part = begin(20);
    EXPECT_EQ(part.offset, 4U);
    part = next(part);
    EXPECT_THAT(part.text, IsEmpty());
    EXPECT_FALSE(part.more);
    write("two\n");
    part = next(part);
    EXPECT_EQ(part.text, "two\n");
    EXPECT_EQ(part.offset, 8U);
}

TEST_F(LogReader, LongFileComesInPartsBetweenTwoCharacters) {
    std::string all = "x";
    while (all.size() < 3 * protocol::kLogBytesMax) {
        all += "\u20ac";
    }
    write(all);
    LogPart part = read_log({7, {3, LogStream::out, "a", path_, 0, 20}}, "a", path_);
    std::string read = part.text;
    int parts = 1;
    while (part.more && parts < 10) {
        EXPECT_LE(part.text.size(), protocol::kLogBytesMax);
        EXPECT_EQ((part.text.size() - (parts == 1 ? 1 : 0)) % 3, 0U);
        part = next(part);
        read += part.text;
        ++parts;
    }
    EXPECT_EQ(read, all);
    EXPECT_GE(parts, 3);
}

TEST_F(LogReader, BytesThatAreNoTextAreNotWaitedForWithoutEnd) {
    write(std::string(3 * protocol::kLogBytesMax, '\x80'));
    LogPart part = read_log({7, {3, LogStream::out, "a", path_, 0, 20}}, "a", path_);
    int parts = 1;
    for (; part.more && parts < 20; ++parts) {
        part = next(part);
    }
    EXPECT_EQ(part.offset, 3 * protocol::kLogBytesMax);
    EXPECT_LT(parts, 20);
}

TEST_F(LogReader, FileThatBeganAnewIsReadFromItsBeginning) {
    write("a long first line\n");
    const LogPart part = begin(20);
    std::ofstream(path_, std::ios::trunc) << "new\n";
    EXPECT_EQ(next(part).text, "new\n");
}

TEST_F(LogReader, AnotherFileOrNodeIsReadFromItsBeginning) {
    write("one\ntwo\n");
    EXPECT_EQ(read_log({1, {3, LogStream::out, "a", "/round_1", 4, 1}}, "a", path_).text,
              "one\ntwo\n");
    EXPECT_EQ(read_log({1, {3, LogStream::out, "b", path_, 4, 1}}, "a", path_).text, "one\ntwo\n");
}

TEST_F(LogReader, WithoutAFileThereIsNoText) {
    EXPECT_THAT(begin(20).trouble, IsEmpty()) << "it has written nothing yet";
    const LogPart part = read_log({1, {3, LogStream::out, "", "", 0, 1}}, "a", "");
    EXPECT_THAT(part.file, IsEmpty());
    EXPECT_THAT(part.trouble, IsEmpty());
}

TEST_F(LogReader, OnlyAFileIsRead) {
    ASSERT_EQ(::mkfifo(path_.c_str(), 0600), 0);
    EXPECT_THAT(begin(20).trouble, HasSubstr(path_)) << "and a FIFO blocks nobody";
}

}  // namespace
}  // namespace regroup::agent
