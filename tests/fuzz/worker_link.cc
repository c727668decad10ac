// SPDX-License-Identifier: Apache-2.0
//
// Packets between an agent and a worker. What either side accepts is equal after another round
// trip, and fits a packet.
#include "rendezvous/worker_link/messages.h"
#include "tests/fuzz/fuzz.h"

namespace {

using namespace regroup;
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

AssignWorker sample_assign() {
    AssignWorker assign;
    assign.round = 7;
    assign.job = "nightly=1";
    assign.rank = 13;
    assign.world_size = 16;
    assign.local_rank = 5;
    assign.local_world_size = 8;
    assign.group_rank = 1;
    assign.group_world_size = 2;
    assign.master_addr = "10.0.0.4";
    assign.master_port = 40117;
    assign.reason = "rank 5 on b ended;\nstandby \\d took slot 1";
    return assign;
}

}  // namespace

std::vector<std::string> regroup::fuzz::seeds() {
    std::vector<std::string> seeds;
    for (const FromWorker& message :
         {FromWorker(Hello{"9f3c01aa", 2, true}), FromWorker(Suspended{6, 812, true}),
          FromWorker(Resumed{7, 813, 1.25, 0.5, 12.75}),
          FromWorker(Fatal{FatalKind::bad_node, "ECC error"}), FromWorker(Remark{"slow\n"}),
          FromWorker(PeerLost{7, 12, "closed the connection"})}) {
        seeds.push_back(encode(message));
    }
    for (const ToWorker& message :
         {ToWorker(Welcome{}), ToWorker(sample_assign()), ToWorker(EndRound{7, "node c is lost"}),
          ToWorker(Pause{7, true, 30000, "drain"})}) {
        seeds.push_back(encode(message));
    }
    return seeds;
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* bytes, std::size_t count) {
    const std::string_view packet(reinterpret_cast<const char*>(bytes), count);
    check(packet, decode_from_worker);
    check(packet, decode_to_worker);
    return 0;
}
