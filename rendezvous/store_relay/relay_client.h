// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store_server/store_server.h"

namespace regroup::store {

/// Takes the store connections of this node's workers, and carries them over one TLS connection to
/// the RelayServer of another node.
///
/// The first worker makes it connect. A worker that comes before the server serves waits: its bytes
/// stay in the kernel. When the TLS connection breaks, all workers are disconnected, and the next
/// one makes it connect again. A worker that does not read keeps no other waiting.
///
/// All calls from the io_context's only thread, which outlives the client.
class RelayClient {
   public:
    struct Options {
        /// `reply_bytes_max` is for each worker and `clients_bytes_max` for all together. Beyond
        /// them, the worker with the most unread bytes is disconnected.
        Limits limits;
        std::size_t workers_max = 4096;
        /// How long a worker waits for the server.
        Duration patience = std::chrono::seconds(60);
        Objection objection;
        /// Called with a sentence when a worker is refused or disconnected for another reason than
        /// that the server left. Must not call this object.
        std::function<void(const std::string& sentence)> on_trouble;
    };

    /// The server is at `host` (a name or an address) and `port`.
    struct Server {
        std::string host;
        std::uint16_t port = 0;
    };

    /// Accepts workers from `acceptor`, which listens already.
    RelayClient(boost::asio::io_context& io, boost::asio::ip::tcp::acceptor acceptor, Server server,
                security::Tls tls, Options options);
    /// Disconnects all workers.
    ~RelayClient();
    RelayClient(const RelayClient&) = delete;
    RelayClient& operator=(const RelayClient&) = delete;

    [[nodiscard]] std::size_t workers_count() const noexcept;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::store
