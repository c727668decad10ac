// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/snapshot/entrance.h"
#include "agent/snapshot/image_memory.h"
#include "agent/snapshot/open_sockets.h"
#include "agent/snapshot/peer_stream.h"
#include "agent/snapshot/session_threads.h"
#include "agent/snapshot/shelf.h"
#include "rendezvous/net/accept_loop.h"
#include "rendezvous/snapshot/channel.h"

namespace regroup::agent {

/// Serves the agents of other nodes: gives them images, and keeps copies for them (peer_client.h).
/// A thread for each connection. The member functions are called from the thread of the io_context.
class PeerServer {
   public:
    /// Called from the threads of the connections.
    struct Handlers {
        /// Errors: overloaded, if there is no such image.
        std::function<Result<ImageRef>(const snapshot::Ask& ask)> find;
        std::function<void(const snapshot::Ask& ask)> on_whole;
        std::function<void(const snapshot::Ask& ask)> on_kept;
        /// A stranger was refused, or a copy was damaged: a sentence for people.
        std::function<void(const std::string& sentence)> say;
    };
    /// All references outlive this object.
    PeerServer(boost::asio::io_context& io, Shelf& shelf, Handlers handlers);
    /// Ends all connections; waits for their threads.
    ~PeerServer();
    PeerServer(const PeerServer&) = delete;
    PeerServer& operator=(const PeerServer&) = delete;

    /// Listens, on loopback if `trust` is of one host. The trust of later rounds must be of the
    /// same kind. Errors: system.
    Result<void> start(const PeerTrust& trust, boost::asio::io_context& io);
    void set_trust(const PeerTrust& trust);
    /// 0: does not listen.
    [[nodiscard]] std::uint16_t port() const noexcept { return port_; }

   private:
    void accepted(int fd);
    void tell_refusal(const std::string& why);
    void serve(UniqueFd socket, const PeerTrust& trust, std::unique_ptr<Entrance::Visit> visit);
    /// False if the connection has ended.
    [[nodiscard]] bool answer(PeerStream& stream, const snapshot::Ask& ask);
    [[nodiscard]] bool give(PeerStream& stream, const snapshot::Ask& ask);
    [[nodiscard]] bool take(PeerStream& stream, const snapshot::Ask& ask);

    Shelf& shelf_;
    Handlers handlers_;
    PeerTrust trust_;
    std::atomic<int> refusals_told_{0};  ///< In this round.
    std::uint16_t port_ = 0;
    net::AcceptLoop accept_loop_;
    OpenSockets sockets_;
    std::atomic<std::size_t> served_{0};  ///< Connections of peers that are trusted.
    Entrance entrance_{kEnteringMax};
    SessionThreads threads_{kServedMax + 2 * kEnteringMax};

    /// Where the number of ranks has changed, all nodes may need the same part at once.
    static constexpr std::size_t kServedMax = 1024;
    static constexpr std::size_t kEnteringMax = 64;
};

}  // namespace regroup::agent
