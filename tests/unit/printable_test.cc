// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/base/printable.h"

#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace regroup {
namespace {

TEST(Printable, KeepsTextOfAllLanguages) {
    for (const char* text :
         {"", "plain text, 100 %", "col\tumn", "naïve Ωμέγα 训练 ジョブ 😀", "\\x1b"}) {
        EXPECT_EQ(printable(text), text);
    }
}

TEST(Printable, ShowsControlsOfTheTerminal) {
    EXPECT_EQ(printable("a\x1b[2J\x1b]0;title\x07"), "a\\x1b[2J\\x1b]0;title\\x07");
    EXPECT_EQ(printable("\x7f\r\b"), "\\x7f\\x0d\\x08");
    EXPECT_EQ(printable(std::string_view("\0", 1)), "\\x00");
    EXPECT_EQ(printable("\xc2\x9b"
                        "31m"),
              "\\u009b31m")
        << "CSI as one C1 control";
}

TEST(Printable, IsOneLine) {
    EXPECT_EQ(printable("failed\nregroup: job has succeeded"),
              "failed\\x0aregroup: job has succeeded");
    EXPECT_EQ(printable("a\u2028b\u2029c\u0085"), "a\\u2028b\\u2029c\\u0085");
}

TEST(Printable, ShowsWhatWouldBeInvisibleOrReorderTheLine) {
    EXPECT_EQ(printable("\u202e\u2066\u200f\u061c"), "\\u202e\\u2066\\u200f\\u061c");
    EXPECT_EQ(printable("no\u200bde\ufeff\u00ad\u2060"), "no\\u200bde\\ufeff\\u00ad\\u2060");
    EXPECT_EQ(printable("\U000e0041"), "\\U000e0041") << "a tag";
}

TEST(Printable, ShowsBytesThatAreNoUtf8) {
    EXPECT_EQ(printable("\xff\x9b"), "\\xff\\x9b") << "a C1 control of 8-bit terminals";
    EXPECT_EQ(printable("\xc0\x9b"), "\\xc0\\x9b") << "too long a form";
    EXPECT_EQ(printable("\xe0\x80\x9b"), "\\xe0\\x80\\x9b");
    EXPECT_EQ(printable("\xed\xa0\x80"), "\\xed\\xa0\\x80") << "a surrogate";
    EXPECT_EQ(printable("\xf4\x90\x80\x80"), "\\xf4\\x90\\x80\\x80") << "beyond Unicode";
    EXPECT_EQ(printable("cut \xe8\xae"), "cut \\xe8\\xae");
    EXPECT_EQ(printable("\xe8"
                        "a"),
              "\\xe8"
              "a");
}

TEST(Printable, ASecondTimeChangesNothing) {
    const std::string once = printable("\x1b\u202e\xff\n");
    EXPECT_EQ(printable(once), once);
}

TEST(PrintableJson, HiddenCharactersAreEscapesOfJson) {
    EXPECT_EQ(printable_json("\"\u202ea\u009b\x7f\u200f\""), "\"\\u202ea\\u009b\\u007f\\u200f\"");
    EXPECT_EQ(printable_json("\"\U000e0041\""), "\"\\udb40\\udc41\"") << "the halves of UTF-16";
}

TEST(PrintableJson, EverythingElseIsKept) {
    for (const char* const json :
         {"{\"a\": [1, \"\\u202e\"]}\n", "\"J\u00fcrgen \u65e5\u672c \U0001f600\"", ""}) {
        EXPECT_EQ(printable_json(json), json);
    }
}

TEST(Printable, LinesAreSplitFirst) {
    EXPECT_THAT(printable_lines("one\ntwo\x1b\n\nlast"),
                ElementsAre("one", "two\\x1b", "", "last"));
    EXPECT_THAT(printable_lines("one\n"), ElementsAre("one"));
    EXPECT_THAT(printable_lines(""), IsEmpty());
}

}  // namespace
}  // namespace regroup
