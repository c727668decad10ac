// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/store_server/store_server.h"

namespace regroup::store {

/// Accepts the TLS connections of RelayClients on other hosts, and serves their workers as clients
/// of one StoreServer, without a socket for each worker. The cost of strangers is bounded: see
/// Options.
///
/// All calls from the io_context's only thread, which outlives the server. So does the StoreServer.
class RelayServer {
   public:
    struct Options {
        /// Further channels of one connection are closed at once.
        std::size_t channels_max = 4096;
        /// Connections that have not proved themselves, at most. Others wait in the kernel's queue.
        std::size_t handshakes_max = 64;
        Duration handshake_limit = std::chrono::seconds(5);
        /// The limit while others wait.
        Duration handshake_limit_when_full = std::chrono::milliseconds(250);
        /// Called with a sentence when a connection is refused or breaks the protocol. Must not
        /// call this object.
        std::function<void(const std::string& sentence)> on_refusal;
    };

    /// Accepts from `acceptor`, which listens already.
    RelayServer(boost::asio::io_context& io, StoreServer& store, security::Tls tls,
                boost::asio::ip::tcp::acceptor acceptor, Options options);
    /// Closes all connections. Their workers leave the store.
    ~RelayServer();
    RelayServer(const RelayServer&) = delete;
    RelayServer& operator=(const RelayServer&) = delete;

    /// Those that have proved themselves.
    [[nodiscard]] std::size_t connections_count() const noexcept;
    [[nodiscard]] std::size_t handshakes_count() const noexcept;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::store
