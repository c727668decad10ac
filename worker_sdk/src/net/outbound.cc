// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/outbound.h"

#include <array>
#include <system_error>

namespace regroup::net {
namespace {

// Measured with all_reduce over the loopback: less costs wake-ups, more costs memory traffic.
constexpr std::size_t kLocalBacklogBytes = std::size_t{1} << 20U;

/// A flood of callers may displace this one so often.
constexpr int kHangUpsMax = 20;

}  // namespace

Outbound::Outbound(const SocketAddress& address, const Hello& hello, const Protection& protection)
    : address_(address), hello_(hello), protection_(protection), stream_(begin_connect(address)) {
    dial();
}

void Outbound::dial() {
    stream_.readable = false;
    stream_.writable = false;  // Until poll reports the end of connecting.
    state_ = State::connecting;
    welcome_.reset();
}

void Outbound::watch(PollSet& poll) {
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
            return connected();
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

void Outbound::connected() {
    if (!stream_.writable) {
        return;
    }
    if (const int error_number = connect_error(stream_.fd); error_number != 0) {
        ending_ = hang_ups_ > 0
                      ? "hung up during the handshake"
                      : "cannot be reached: " + std::generic_category().message(error_number);
        return;
    }
    stream_.limit_local_backlog(kLocalBacklogBytes);
    introduction_ = introduce(hello_, protection_);
    state_ = State::greeting;
    // So few bytes always fit into a new connection.
    if (stream_.write_some(bytes_of(introduction_)) != sizeof introduction_) {
        check_hang_up();
    }
}

void Outbound::read_welcome() {
    welcome_.filled(stream_.read_some(welcome_.space()));
    if (!welcome_.complete()) {
        return check_hang_up();
    }
    const Welcome welcome = welcome_.value();
    ending_ = objection_to(welcome, introduction_, protection_);
    if (ended()) {
        return;
    }
    const HandshakeResult session = result_of(End::dialling, introduction_, welcome, protection_);
    if (stream_.write_some(bytes_of(session.proof)) != sizeof session.proof) {
        ending_ = "hung up during the handshake";
        return;
    }
    if (session.keys) {
        stream_.encrypt(*session.keys);
    }
    state_ = State::ready;
}

void Outbound::check_hang_up() {
    if (!stream_.ended()) {
        return;
    }
    if (++hang_ups_ > kHangUpsMax) {
        ending_ = "hung up during the handshake";
        return;
    }
    stream_ = Stream(begin_connect(address_));
    dial();
}

}  // namespace regroup::net
