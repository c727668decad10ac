// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/messenger.h"

#include <algorithm>
#include <utility>

namespace regroup::cpu {
namespace {

class ConnectionStream final : public MessageStream {
   public:
    explicit ConnectionStream(net::Stream& stream) noexcept : stream_(stream) {}
    std::size_t write_some(std::span<const iovec> parts) override {
        return stream_.write_some(parts);
    }
    std::size_t read_some(std::span<std::byte> space) override { return stream_.read_some(space); }

   private:
    net::Stream& stream_;
};

}  // namespace

Messenger::Messenger(Mesh& mesh, Conversation::Complete complete)
    : mesh_(mesh), complete_(std::move(complete)) {}

Conversation& Messenger::conversation(std::uint32_t peer) {
    return conversations_
        .try_emplace(peer, mesh_.peer(mesh_.position().rank).name, mesh_.peer(peer).name, complete_)
        .first->second;
}

void Messenger::post(Operation operation) {
    conversation(operation.signature.peer).post(std::move(operation));
}

std::vector<Operation> Messenger::take_all() {
    std::vector<Operation> operations;
    for (auto& [peer, conversation] : conversations_) {
        conversation.take_all(operations);
    }
    return operations;
}

void Messenger::watch(net::PollSet& poll) {
    for (const auto& [peer, conversation] : conversations_) {
        if (conversation.sending() == nullptr) {
            continue;
        }
        Outbound& outbound = mesh_.outbound(peer, ChannelKind::message);
        if (outbound.ready() && !outbound.stream().ended()) {
            poll.want_write(outbound.stream());
        }
    }
    for (auto& [peer, stream] : mesh_.inbounds(ChannelKind::message)) {
        if (!stream.ended() && conversation(peer).wants_to_read()) {
            poll.want_read(stream);
        }
    }
}

void Messenger::progress() {
    for (const auto& [peer, stream] : mesh_.inbounds(ChannelKind::message)) {
        static_cast<void>(conversation(peer));  // Read its messages even without a recv.
    }
    const Instant now = SteadyClock().now();
    for (auto& [peer, conversation] : conversations_) {
        progress_sends(peer, conversation);
        progress_recvs(peer, conversation);
        conversation.check_deadlines(now);
    }
}

void Messenger::progress_sends(std::uint32_t peer, Conversation& conversation) {
    if (conversation.sending() == nullptr) {
        return;
    }
    Outbound& outbound = mesh_.outbound(peer, ChannelKind::message);
    if (outbound.ready()) {
        ConnectionStream stream(outbound.stream());
        conversation.send(stream);
    }
    const Operation* const stuck = conversation.sending();
    if (stuck != nullptr && (outbound.ended() || (outbound.ready() && outbound.stream().ended()))) {
        mesh_.note_gone(peer, outbound.ended() ? outbound.ending() : "closed the connection");
        mesh_.suspect(peer, stuck->signature);
    }
}

void Messenger::progress_recvs(std::uint32_t peer, Conversation& conversation) {
    if (net::Stream* const inbound = mesh_.inbound(peer, ChannelKind::message)) {
        ConnectionStream stream(*inbound);
        conversation.receive(stream);
    } else {
        conversation.sort_in();
    }
    if (const Operation* const waiting = conversation.receiving()) {
        mesh_.await(peer, ChannelKind::message, waiting->signature);
    }
}

Instant Messenger::next_deadline() const {
    Instant next = Instant::max();
    for (const auto& [peer, conversation] : conversations_) {
        next = std::min(next, conversation.next_deadline());
    }
    return next;
}

}  // namespace regroup::cpu
