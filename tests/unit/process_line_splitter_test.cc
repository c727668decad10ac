// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "agent/process/line_splitter.h"

namespace regroup::agent {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class LineSplitterTest : public ::testing::Test {
   protected:
    void feed(std::string_view bytes) {
        splitter_.feed(bytes, now_, [this](std::string_view line) { lines_.emplace_back(line); });
    }
    void finish() {
        splitter_.finish([this](std::string_view line) { lines_.emplace_back(line); });
    }

    LineSplitter splitter_;
    Instant now_{};
    std::vector<std::string> lines_;
};

TEST_F(LineSplitterTest, LinesDoNotDependOnHowTheyArrive) {
    const std::string text = "one\n\ntwo\r\nthree\nlast";
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
        lines_.clear();
        for (std::size_t at = 0; at < text.size(); at += piece) {
            feed(std::string_view(text).substr(at, piece));
        }
        EXPECT_THAT(lines_, ElementsAre("one", "", "two", "three")) << "in pieces of " << piece;
        finish();
        EXPECT_EQ(lines_.back(), "last");
    }
}

TEST_F(LineSplitterTest, EndWithoutAPartialLineAddsNoLine) {
    feed("one\n");
    finish();
    EXPECT_THAT(lines_, ElementsAre("one"));
}

TEST_F(LineSplitterTest, LongLineComesInPiecesAndNothingIsLost) {
    const std::string line(LineSplitter::kLineBytesMax, 'x');
    feed(line);
    EXPECT_THAT(lines_, IsEmpty());
    feed("\n");
    EXPECT_THAT(lines_, ElementsAre(line));

    lines_.clear();
    feed(line + line + "yz\n");
    EXPECT_THAT(lines_, ElementsAre(line, line, "yz"));
}

TEST_F(LineSplitterTest, ProgressBarIsShownOncePerSecondAndAtItsEnd) {
    for (int percent = 0; percent < 100; ++percent) {
        feed("\r" + std::to_string(percent) + " %");
        now_ += std::chrono::milliseconds(30);
    }
    feed("\r100 %\n");
    EXPECT_THAT(lines_, ElementsAre("0 %", "34 %", "68 %", "100 %"));
}

TEST_F(LineSplitterTest, UnterminatedProgressBarIsShownAtTheEndOfTheStream) {
    feed("1 %\r2 %\r3 %\r");
    finish();
    EXPECT_THAT(lines_, ElementsAre("1 %", "3 %"));
}

}  // namespace
}  // namespace regroup::agent
