// SPDX-License-Identifier: Apache-2.0
#include <gmock/gmock.h>

#include "rendezvous/protocol/framing.h"

namespace regroup::protocol {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

std::vector<std::string> drain(FrameReader& reader) {
    std::vector<std::string> payloads;
    while (true) {
        Result<std::optional<std::string>> next = reader.next();
        if (!next) {
            ADD_FAILURE() << next.error().detail;
            return payloads;
        }
        if (!*next) {
            return payloads;
        }
        payloads.push_back(std::move(**next));
    }
}

std::string header(unsigned char a, unsigned char b, unsigned char c, unsigned char d) {
    return {static_cast<char>(a), static_cast<char>(b), static_cast<char>(c), static_cast<char>(d)};
}

TEST(ProtocolFraming, FrameIsItsLengthMostSignificantFirstThenThePayload) {
    EXPECT_EQ(make_frame("{}"), header(0, 0, 0, 2) + "{}");
    const std::string large(0x00010203, 'x');
    EXPECT_EQ(make_frame(large).substr(0, 4), header(0, 1, 2, 3));
}

TEST(ProtocolFraming, PayloadsAreReadFromAStreamSplitAnywhere) {
    const std::string large(300, 'z');
    const std::string stream = make_frame("one") + make_frame("") + make_frame(large);
    for (std::size_t first = 0; first <= stream.size(); ++first) {
        FrameReader reader;
        reader.feed(std::string_view(stream).substr(0, first));
        std::vector<std::string> payloads = drain(reader);
        reader.feed(std::string_view(stream).substr(first));
        for (std::string& payload : drain(reader)) {
            payloads.push_back(std::move(payload));
        }
        EXPECT_THAT(payloads, ElementsAre("one", "", large)) << first;
    }
}

TEST(ProtocolFraming, PayloadsAreReadFromSingleBytes) {
    const std::string stream = make_frame("one") + make_frame("") + make_frame("three");
    FrameReader reader;
    std::vector<std::string> payloads;
    for (const char byte : stream) {
        reader.feed(std::string_view(&byte, 1));
        for (std::string& payload : drain(reader)) {
            payloads.push_back(std::move(payload));
        }
    }
    EXPECT_THAT(payloads, ElementsAre("one", "", "three"));
}

TEST(ProtocolFraming, FramesMayAccumulateBeforeTheyAreTaken) {
    FrameReader reader;
    for (const char* payload : {"a", "b", "c"}) {
        reader.feed(make_frame(payload));
    }
    EXPECT_THAT(drain(reader), ElementsAre("a", "b", "c"));
}

TEST(ProtocolFraming, TruncatedFrameIsNotYetAPayload) {
    FrameReader reader;
    const std::string frame = make_frame("payload");
    reader.feed(std::string_view(frame).substr(0, frame.size() - 1));
    EXPECT_THAT(drain(reader), ElementsAre());
    reader.feed("");
    EXPECT_THAT(drain(reader), ElementsAre());
}

TEST(ProtocolFraming, LargestFramePassesAndOneMoreByteDoesNot) {
    FrameReader reader;
    const std::string largest(kFrameBytesMax, 'x');
    reader.feed(make_frame(largest));
    EXPECT_THAT(drain(reader), ElementsAre(largest));
    reader.feed(header(0, 8, 0, 1));
    const auto next = reader.next();
    ASSERT_FALSE(next);
    EXPECT_EQ(next.error().code, Errc::invalid_argument);
    EXPECT_THAT(next.error().detail, HasSubstr("524289 bytes exceeds the limit of 524288"));
}

TEST(ProtocolFraming, OversizedFrameIsRefusedByItsHeaderAlone) {
    FrameReader reader;
    reader.feed("GET ");
    EXPECT_FALSE(reader.next());
}

TEST(ProtocolFraming, FramesBeforeAnOversizedOneAreStillGiven) {
    FrameReader reader;
    reader.feed(make_frame("good") + header(255, 255, 255, 255));
    const auto first = reader.next();
    ASSERT_TRUE(first);
    EXPECT_EQ(**first, "good");
    EXPECT_FALSE(reader.next());
}

TEST(ProtocolFraming, BrokenStreamStaysBroken) {
    FrameReader reader;
    reader.feed(header(255, 0, 0, 0));
    ASSERT_FALSE(reader.next());
    reader.feed(make_frame("good"));
    const auto next = reader.next();
    ASSERT_FALSE(next);
    EXPECT_THAT(next.error().detail, HasSubstr("4278190080 bytes"));
}

}  // namespace
}  // namespace regroup::protocol
