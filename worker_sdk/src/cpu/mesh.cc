// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/mesh.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {

Mesh::Mesh(const GroupPosition& position, std::vector<Peer> peers, UniqueFd listener)
    : position_(position),
      peers_(std::make_shared<const std::vector<Peer>>(std::move(peers))),
      acceptor_(std::move(listener), {.hello = hello_to(position, peer(position.rank),
                                                        position.rank, ChannelKind::control),
                                      .world_size = position.world_size,
                                      .kinds = kChannelKinds,
                                      .protection = position.protection}),
      endings_(position.world_size) {}

Outbound& Mesh::outbound(std::uint32_t peer, ChannelKind kind) {
    ENSURE(peer < position_.world_size && peer != position_.rank);
    auto& outbounds = outbounds_[static_cast<std::size_t>(kind)];
    const auto found = outbounds.find(peer);
    if (found != outbounds.end()) {
        return found->second;
    }
    return outbounds
        .try_emplace(peer, this->peer(peer).address,
                     hello_to(position_, this->peer(peer), peer, kind), position_.protection)
        .first->second;
}

net::Stream* Mesh::inbound(std::uint32_t peer, ChannelKind kind) {
    auto& streams = inbounds(kind);
    const auto found = streams.find(peer);
    return found == streams.end() ? nullptr : &found->second;
}

void Mesh::await(std::uint32_t peer, ChannelKind kind, const Signature& operation) {
    const net::Stream* const stream = inbound(peer, kind);
    if (stream != nullptr) {
        if (stream->ended()) {
            note_gone(peer, "closed the connection");
            suspect(peer, operation);
        }
        return;
    }
    if (gone(peer)) {
        suspect(peer, operation);
    } else if (peer != position_.next() && peer != position_.previous()) {
        // The control line watches the neighbours. Any other peer needs a connection.
        static_cast<void>(outbound(peer, kind));
    }
}

void Mesh::suspect(std::uint32_t peer, const Signature& operation) {
    if (suspicion_) {
        return;
    }
    suspect({.code = Errc::disconnected,
             .operation = describe(operation),
             .broken_to = peer,
             .how = endings_[peer]});
}

void Mesh::suspect(const GroupFailure& failure) {
    if (suspicion_) {
        return;
    }
    const Instant now = SteadyClock().now();
    suspicion_ = {.failure = failure, .until = after(now, kExplanationLimit)};
    if (!failure.broken_to) {
        return;
    }
    const std::uint32_t peer = *failure.broken_to;
    note_gone(peer, failure.how);
    suspicion_->failure.cause = this->peer(peer).name + " " + endings_[peer];
    if (left_.contains(peer)) {
        suspicion_->until = now;
        suspicion_->failure.broken_to.reset();
    } else {
        tell_break(peer, endings_[peer]);
    }
}

std::unique_ptr<CollectiveLinks> Mesh::part_links() {
    constexpr auto kCollective = static_cast<std::size_t>(ChannelKind::collective);
    auto links = std::make_unique<CollectiveLinks>(position_, peers_,
                                                   std::exchange(outbounds_[kCollective], {}),
                                                   std::exchange(inbounds_[kCollective], {}));
    links_ = links.get();
    return links;
}

void Mesh::tell_break(std::uint32_t peer, const std::string& how) {
    if (const auto listener = std::exchange(break_listener_, nullptr)) {
        listener(this->peer(peer).world_rank, how);
    }
}

void Mesh::note_gone(std::uint32_t peer, const std::string& ending) {
    if (endings_[peer].empty()) {
        endings_[peer] = ending;
    }
}

void Mesh::note_left(std::uint32_t peer) {
    endings_[peer] = "has left the group";
    left_.insert(peer);
    if (links_ != nullptr) {
        links_->note_left(peer);
    }
}

void Mesh::turn(Instant until) {
    constexpr auto kControl = static_cast<std::size_t>(ChannelKind::control);
    // Control connections are used both ways: once they are ready, only the control line reads
    // them.
    const auto ours = [](std::size_t kind, const Outbound& outbound) {
        return kind != kControl || !outbound.ready();
    };
    acceptor_.watch(poll_);
    until = std::min(until, acceptor_.next_deadline());
    for (std::size_t kind = 0; kind < kChannelKinds; ++kind) {
        for (auto& [peer, outbound] : outbounds_[kind]) {
            if (ours(kind, outbound)) {
                outbound.watch(poll_);
            }
        }
    }
    for (net::Participant* const participant : participants_) {
        participant->watch(poll_);
        until = std::min(until, participant->next_deadline());
    }
    if (suspicion_) {
        until = std::min(until, suspicion_->until);
    }

    poll_.wait(until);

    const Instant now = SteadyClock().now();
    for (net::Acceptor::Accepted& accepted : acceptor_.progress(now)) {
        const auto kind = static_cast<ChannelKind>(accepted.kind);
        if (kind == ChannelKind::collective && links_ != nullptr) {
            links_->admit(std::move(accepted));
        } else {
            accepted.welcome();
            inbounds(kind).try_emplace(accepted.source, std::move(accepted.stream));
        }
    }
    for (std::size_t kind = 0; kind < kChannelKinds; ++kind) {
        for (auto& [peer, outbound] : outbounds_[kind]) {
            if (ours(kind, outbound)) {
                outbound.progress();
            }
            if (outbound.ended()) {
                note_gone(peer, outbound.ending());
            }
        }
    }
    for (net::Participant* const participant : participants_) {
        participant->progress();
    }
    if (suspicion_ && now >= suspicion_->until) {
        throw suspicion_->failure;
    }
}

}  // namespace regroup::cpu
