// SPDX-License-Identifier: Apache-2.0
//
// The stream of a control connection, in pieces. A message that either side accepts fits a frame,
// and is the same after another round trip.
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/protocol/message_line.h"
#include "tests/fuzz/fuzz.h"
#include "tests/unit/protocol_samples.h"

namespace regroup::fuzz_control_protocol {
namespace {

template <class Message>
bool check(std::string_view payload, Result<Message> (*decode)(std::string_view)) {
    const Result<Message> message = decode(payload);
    if (!message) {
        fuzz::require(!message.error().detail.empty(), "a refusal has a reason");
        return false;
    }
    const std::string sent = protocol::encode(*message);
    fuzz::require(sent.size() <= protocol::kFrameBytesMax, "an accepted message fits a frame");
    const Result<Message> again = decode(sent);
    fuzz::require(again.has_value(), "an accepted message is accepted again");
    fuzz::require(protocol::encode(*again) == sent, "a round trip changes nothing");
    return true;
}

void check(std::string_view payload) {
    const bool by_daemon = check(payload, protocol::decode_from_agent);
    const bool by_agent = check(payload, protocol::decode_from_daemon);
    fuzz::require(!by_daemon || !by_agent, "only one side accepts a message");
}

std::vector<std::string> seeds() {
    std::vector<std::string> seeds;
    std::string stream;
    const auto add = [&](const std::string& payload) {
        seeds.push_back('\xFF' + payload);
        stream += protocol::make_frame(payload);
    };
    for (const auto& message : testing::samples_from_agent()) {
        add(protocol::encode(message));
    }
    for (const auto& message : testing::samples_from_daemon()) {
        add(protocol::encode(message));
    }
    seeds.push_back('\x07' + stream);
    return seeds;
}

/// The first byte: the size of the pieces of a stream, or 255 for a single payload.
void test(const std::uint8_t* bytes, std::size_t count) {
    fuzz::Input input(bytes, count);
    const std::size_t piece = input.byte();
    if (piece == 255) {
        check(input.bytes(count));
        return;
    }
    protocol::FrameReader reader;
    bool lost = false;
    while (!input.empty()) {
        reader.feed(input.bytes(piece + 1));
        for (;;) {
            const auto payload = reader.next();
            fuzz::require(!lost || !payload, "a lost stream stays lost");
            lost = !payload;
            if (lost || !*payload) {
                break;
            }
            fuzz::require((*payload)->size() <= protocol::kFrameBytesMax, "a payload is bounded");
            check(**payload);
        }
    }
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_control_protocol
