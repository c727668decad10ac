// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/outbound.h"

#include <array>
#include <system_error>

namespace regroup::cpu {
namespace {

// Measured with all_reduce over the loopback: less costs wake-ups, more costs memory traffic.
constexpr std::size_t kLocalBacklogBytes = std::size_t{1} << 20U;

}  // namespace

Hello hello_to(const GroupPosition& position, const Peer& peer, std::uint32_t target,
               ChannelKind kind) {
    return {.kind = kind,
            .source = position.rank,
            .target = target,
            .round = position.round,
            .group = position.group,
            .token = peer.token};
}

void welcome(net::Stream& stream, std::uint32_t rank) {
    const Welcome welcome{.source = rank};
    static_cast<void>(stream.write_some(bytes_of(welcome)));  // It always fits.
}

Outbound::Outbound(const Peer& peer, const Hello& hello)
    : hello_(hello), stream_(net::begin_connect(peer.address)) {
    stream_.readable = false;
    stream_.writable = false;  // Until poll reports the end of connecting.
}

void Outbound::watch(net::PollSet& poll) {
    if (ended()) {
        return;
    }
    if (state_ == State::connecting) {
        poll.want_write(stream_);
    } else {
        poll.want_read(stream_);
    }
}

void Outbound::progress() {
    if (ended()) {
        return;
    }
    switch (state_) {
        case State::connecting:
            return greet();
        case State::greeting:
            return read_welcome();
        case State::ready:
            // The peer never sends on this connection, so any event here is its end.
            std::array<std::byte, 1> byte{};
            if (stream_.read_some(byte) != 0 || stream_.ended()) {
                ending_ = "closed the connection";
            }
    }
}

void Outbound::greet() {
    if (!stream_.writable) {
        return;
    }
    if (const int error_number = net::connect_error(stream_.fd); error_number != 0) {
        ending_ = "cannot be reached: " + std::generic_category().message(error_number);
    } else if (stream_.write_some(bytes_of(hello_)) != sizeof hello_) {
        // So few bytes always fit into a new connection.
        ending_ = "cannot be reached: the connection broke at once";
    } else {
        stream_.limit_local_backlog(kLocalBacklogBytes);
        state_ = State::greeting;
    }
}

void Outbound::read_welcome() {
    welcome_.filled(stream_.read_some(welcome_.space()));
    if (welcome_.complete()) {
        if (welcome_.value() == Welcome{.source = hello_.target}) {
            state_ = State::ready;
        } else {
            ending_ = "gave an answer that is not of this group";
        }
    } else if (stream_.ended()) {
        ending_ = "hung up during the handshake";
    }
}

}  // namespace regroup::cpu
