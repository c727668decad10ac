// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "worker_sdk/src/net/handshake.h"
#include "worker_sdk/src/net/poll_set.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::net {

/// A connection that this rank has dialled: connecting -> greeting -> ready, or ended at any point.
/// Dials again if an Acceptor with too many callers sends it away.
class Outbound {
   public:
    Outbound(const SocketAddress& address, const Hello& hello, const Protection& protection);

    void watch(PollSet& poll);
    /// Continues the handshake; afterwards only checks for the end of the connection.
    void progress();

    [[nodiscard]] bool ready() const noexcept { return state_ == State::ready && !ended(); }
    /// The reason why the connection is unusable, as the rest of a sentence about the peer; empty
    /// while it is usable.
    [[nodiscard]] const std::string& ending() const noexcept { return ending_; }
    [[nodiscard]] bool ended() const noexcept { return !ending_.empty(); }
    /// Requires `ready()`.
    [[nodiscard]] Stream& stream() noexcept { return stream_; }

   private:
    enum class State { connecting, greeting, ready };

    void dial();
    void connected();
    void read_welcome();
    void check_hang_up();

    SocketAddress address_;
    Hello hello_;
    Protection protection_;
    Stream stream_;
    State state_ = State::connecting;
    int hang_ups_ = 0;
    Introduction introduction_;
    Partial<Welcome> welcome_;
    std::string ending_;
};

}  // namespace regroup::net
