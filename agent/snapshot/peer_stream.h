// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "agent/snapshot/open_sockets.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/security/key.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/snapshot/channel.h"

namespace regroup::agent {

/// How two agents of a round know each other.
struct PeerTrust {
    /// All nodes are on this host: the other end is a process of this user or of root. Otherwise
    /// both sides prove over TLS that they know `key`.
    bool same_user = false;
    std::optional<security::Key> key{};
    std::string purpose{};  ///< Of the connection, the same on both sides.
};

/// A connection between two agents about snapshots: the messages of a worker's channel, each after
/// its length, and images between them. For one thread, which waits. Each call ends with an error
/// if the peer makes no progress for kPatience; errors are `disconnected`, with the predicate of a
/// sentence about the peer.
class PeerStream {
   public:
    static constexpr Duration kPatience = std::chrono::seconds(20);

    /// `endpoint` has a numeric host. `sockets` outlives the stream, and can end it.
    static Result<std::unique_ptr<PeerStream>> connect(const rendezvous::Endpoint& endpoint,
                                                       const PeerTrust& trust,
                                                       OpenSockets& sockets);
    /// Takes a socket that was accepted.
    static Result<std::unique_ptr<PeerStream>> accept(UniqueFd socket, const PeerTrust& trust,
                                                      OpenSockets& sockets);

    Result<void> send(std::span<const std::byte> bytes);
    Result<void> receive(std::span<std::byte> bytes);
    Result<void> send(const snapshot::Ask& ask) { return send_text(snapshot::encode(ask)); }
    Result<void> send(const snapshot::Answer& answer) {
        return send_text(snapshot::encode(answer));
    }
    Result<snapshot::Ask> receive_ask();
    Result<snapshot::Answer> receive_answer();

   private:
    PeerStream() = default;
    template <class T>
    [[nodiscard]] std::optional<T> wait(boost::asio::awaitable<T> operation, Duration limit);
    void hold(boost::asio::ip::tcp::socket socket, OpenSockets& sockets);
    Result<void> open(const PeerTrust& trust, bool is_server);
    /// Waits until the socket is ready for `events`, at most until `last`. False: it is not.
    [[nodiscard]] bool wait_for(short events, Instant last) const;
    Result<void> send_text(const std::string& text);
    Result<std::string> receive_text();

    boost::asio::io_context io_{1};
    std::unique_ptr<security::Stream> stream_;
    std::unique_ptr<OpenSockets::Entry> entry_;  // Ends before the socket.
};

}  // namespace regroup::agent
