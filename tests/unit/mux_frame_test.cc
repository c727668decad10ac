// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/mux_frame.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "tests/support/matchers.h"

namespace regroup::store {
namespace {

/// A frame as the peer sees it: pieces of one data frame are one.
struct Seen {
    Channel channel = 0;
    MuxKind kind = MuxKind::data;
    std::string bytes;

    friend bool operator==(const Seen&, const Seen&) = default;
};

/// Reads `bytes` in parts of `length`. Neighbouring data of one channel is joined.
std::vector<Seen> read_all(std::string_view bytes, std::size_t length) {
    MuxReader reader;
    std::vector<Seen> seen;
    while (!bytes.empty()) {
        std::string_view part = bytes.substr(0, length);
        bytes.remove_prefix(part.size());
        while (!part.empty()) {
            const auto piece = reader.next(part);
            if (!piece) {
                ADD_FAILURE() << piece.error().detail;
                return seen;
            }
            if (!*piece) {
                continue;
            }
            const MuxPiece& now = **piece;
            if (now.kind == MuxKind::data && !seen.empty() && seen.back().kind == MuxKind::data &&
                seen.back().channel == now.channel) {
                seen.back().bytes += now.bytes;
            } else {
                seen.push_back({now.channel, now.kind, std::string(now.bytes)});
            }
        }
    }
    return seen;
}

std::string error_of(std::string_view bytes) {
    MuxReader reader;
    while (!bytes.empty()) {
        const auto piece = reader.next(bytes);
        if (!piece) {
            return piece.error().detail;
        }
    }
    return "";
}

TEST(MuxFrame, FramesSurviveAnySegmentation) {
    std::string bytes;
    append_mux(bytes, 7, MuxKind::open);
    append_mux_data(bytes, 7, "hello");
    append_mux(bytes, 0xFFFFFFFF, MuxKind::open);
    append_mux_data(bytes, 0xFFFFFFFF, std::string(3, '\0'));
    append_mux(bytes, 7, MuxKind::close);
    const std::vector<Seen> expected{{7, MuxKind::open, ""},
                                     {7, MuxKind::data, "hello"},
                                     {0xFFFFFFFF, MuxKind::open, ""},
                                     {0xFFFFFFFF, MuxKind::data, std::string(3, '\0')},
                                     {7, MuxKind::close, ""}};
    for (std::size_t length = 1; length <= bytes.size(); ++length) {
        EXPECT_EQ(read_all(bytes, length), expected) << length;
    }
}

TEST(MuxFrame, LongDataIsSplitIntoFramesOfTheLimit) {
    const std::string text(2 * kMuxBytesMax + 1, 'x');
    std::string bytes;
    append_mux_data(bytes, 1, text);
    EXPECT_EQ(bytes.size(), text.size() + 3 * 8);
    EXPECT_EQ(read_all(bytes, 1000), (std::vector<Seen>{{1, MuxKind::data, text}}));
}

TEST(MuxFrame, NoDataIsNoFrame) {
    std::string bytes;
    append_mux_data(bytes, 1, "");
    EXPECT_EQ(bytes, "");
}

TEST(MuxFrame, UnknownKindIsRefused) {
    EXPECT_THAT(error_of(std::string("\1\0\0\0\0\0\0\0", 8)), HasSubstr("unknown kind 0"));
    EXPECT_THAT(error_of(std::string("\1\0\0\0\0\0\0\4", 8)), HasSubstr("unknown kind 4"));
    EXPECT_THAT(error_of(std::string("\1\0\0\0\0\0\0\xFF", 8)), HasSubstr("unknown kind 255"));
}

TEST(MuxFrame, LengthsOutsideTheLimitsAreRefused) {
    EXPECT_THAT(error_of(std::string("\1\0\0\0\0\0\0\2", 8)), HasSubstr("of 0 bytes"));
    EXPECT_THAT(error_of(std::string("\1\0\0\0\1\0\1\2", 8)), HasSubstr("of 65537 bytes"));
    EXPECT_THAT(error_of(std::string("\1\0\0\0\xFF\xFF\xFF\2", 8)), HasSubstr("16777215 bytes"));
    EXPECT_THAT(error_of(std::string("\1\0\0\0\1\0\0\1", 8)), HasSubstr("kind 1 with bytes"));
    EXPECT_THAT(error_of(std::string("\1\0\0\0\1\0\0\3", 8)), HasSubstr("kind 3 with bytes"));
}

}  // namespace
}  // namespace regroup::store
