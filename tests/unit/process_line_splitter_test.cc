// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <string_view>
#include <vector>

#include <gtest/gtest.h>

#include "agent/process/line_splitter.h"
#include "tests/support/matchers.h"

namespace regroup::agent {
namespace {

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

TEST_F(LineSplitterTest, ClearedBarIsNotShown) {
    feed("\r 50 %\r      \rlog\n");
    EXPECT_THAT(lines_, ElementsAre(" 50 %", "log"));
}

TEST_F(LineSplitterTest, BytesOfAllKindsAreKept) {
    using std::string_literals::operator""s;
    const std::string bytes = "nul \0, tab \t, bell \a, no UTF-8 \xff"s;
    feed(bytes + "\n");
    EXPECT_THAT(lines_, ElementsAre(bytes));
}

TEST_F(LineSplitterTest, OnlyColoursAreKeptOfControlSequences) {
    const std::string text =
        "\x1b[?25l\x1b[1;31mred\x1b[0m\x1b[2K\x1b[10C!\n\x1b]0;title\a\x1b[3\n\x1b";
    for (std::size_t piece = 1; piece <= text.size(); ++piece) {
        lines_.clear();
        for (std::size_t at = 0; at < text.size(); at += piece) {
            feed(std::string_view(text).substr(at, piece));
        }
        finish();
        EXPECT_THAT(lines_, ElementsAre("\x1b[1;31mred\x1b[0m!", "\x1b]0;title\a\x1b[3", "\x1b"))
            << "in pieces of " << piece;
    }
}

/// The output of tqdm for two bars, each with a place of its own.
class LineSplitterBars : public LineSplitterTest {
   protected:
    void outer(int done) { feed("\router " + std::to_string(done)); }
    void inner(int done) { feed("\n\rinner " + std::to_string(done) + "\x1b[A"); }
    void clear_inner() { feed("\n\r       \r\x1b[A"); }
    void pass(int ms) { now_ += std::chrono::milliseconds(ms); }
};

TEST_F(LineSplitterBars, BarsBelowEachOtherAreShownOncePerSecondAndAtTheEnd) {
    for (int epoch = 0; epoch < 3; ++epoch) {
        outer(epoch);
        for (int step = 0; step < 10; ++step) {
            inner(10 * epoch + step);
            pass(70);
        }
        clear_inner();
    }
    outer(3);
    feed("\n");
    EXPECT_THAT(lines_, ElementsAre("outer 0", "inner 0", "outer 1", "inner 15", "outer 2"));
    finish();
    EXPECT_EQ(lines_.back(), "outer 3");
    EXPECT_THAT(lines_, ::testing::Each(::testing::Not(::testing::HasSubstr("\x1b"))));
}

TEST_F(LineSplitterBars, LinesOfTheProgramBetweenBarsAreAllShown) {
    outer(0);
    inner(0);
    std::vector<std::string> said;
    for (int step = 1; step < 30; ++step) {
        said.push_back("loss " + std::to_string(step));
        // As tqdm.write, which clears the bars in any order.
        if (step % 2 == 0) {
            feed("\r       \r");
            clear_inner();
        } else {
            clear_inner();
            feed("\r       \r");
        }
        feed(said.back() + "\n");
        outer(0);
        inner(step);
        feed("loss again\n");
        said.emplace_back("loss again");
    }
    finish();
    std::erase_if(lines_, [](const std::string& line) { return !line.starts_with("loss"); });
    EXPECT_EQ(lines_, said);
}

TEST_F(LineSplitterBars, BarOfThePastIsShownBeforeLaterLines) {
    outer(0);
    inner(0);
    outer(1);
    feed("\n");
    pass(1500);
    feed("done\n");
    EXPECT_THAT(lines_, ElementsAre("outer 0", "inner 0", "outer 1", "done"));
}

/// The output of rich for a table of three lines that changes.
TEST_F(LineSplitterTest, TableIsShownAsAWholeOncePerSecondAndAtTheEnd) {
    const auto table = [](int version) {
        const std::string text = std::to_string(version);
        return "a " + text + "\nb " + text + "\nc " + text;
    };
    feed(table(0));
    for (int version = 1; version < 5; ++version) {
        now_ += std::chrono::milliseconds(400);
        feed("\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K" + table(version));
    }
    EXPECT_THAT(lines_, ElementsAre("a 0", "b 0", "c 0", "a 3", "b 3", "c 3"));
    now_ += std::chrono::milliseconds(400);
    feed("\r\x1b[2K\x1b[1A\x1b[2K\x1b[1A\x1b[2K" + table(5) + "\n");
    EXPECT_THAT(lines_, ElementsAre("a 0", "b 0", "c 0", "a 3", "b 3", "c 3", "a 5", "b 5", "c 5"));
}

}  // namespace
}  // namespace regroup::agent
