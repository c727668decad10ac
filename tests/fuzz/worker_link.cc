// SPDX-License-Identifier: Apache-2.0
//
// Packets between an agent and a worker. A message that either side accepts is equal after
// another round trip, and fits a packet.
#include "tests/fuzz/fuzz.h"
#include "tests/unit/worker_link_samples.h"

namespace regroup::fuzz_worker_link {
namespace {

using namespace regroup::worker_link;

template <class Message>
void check(std::string_view packet, Result<Message> (*decode)(std::string_view)) {
    const Result<Message> message = decode(packet);
    if (!message) {
        fuzz::require(!message.error().detail.empty(), "a refusal has a reason");
        return;
    }
    const std::string sent = encode(*message);
    fuzz::require(sent.size() <= kMessageLimit, "an accepted message fits a packet");
    const Result<Message> again = decode(sent);
    fuzz::require(again.has_value(), "an accepted message is accepted again");
    fuzz::require(*again == *message, "a round trip changes nothing");
}

std::vector<std::string> seeds() {
    std::vector<std::string> seeds;
    for (const FromWorker& message : samples_from_worker()) {
        seeds.push_back(encode(message));
    }
    for (const ToWorker& message : samples_to_worker()) {
        seeds.push_back(encode(message));
    }
    return seeds;
}

void test(const std::uint8_t* bytes, std::size_t count) {
    const std::string_view packet(reinterpret_cast<const char*>(bytes), count);
    check(packet, decode_from_worker);
    check(packet, decode_to_worker);
}

}  // namespace

fuzz::Target target() {
    return {seeds, test};
}

}  // namespace regroup::fuzz_worker_link
