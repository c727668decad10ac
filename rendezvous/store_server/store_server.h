// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/store/store_engine.h"

namespace regroup::store {

/// Says why a connection that was just accepted must not stay, as the predicate of a sentence about
/// it ("it belongs to user ann"); nothing if it may. Gets its ends as sockets know them.
using Objection = std::function<std::optional<std::string>(
    const boost::asio::ip::tcp::endpoint& ours, const boost::asio::ip::tcp::endpoint& theirs)>;

/// Serves one store to TCPStore clients with the event loop of Asio; see StoreEngine.
///
/// All calls from the io_context's only thread. The io_context outlives the server; handlers that
/// are still queued when the server is destroyed do nothing.
class StoreServer {
   public:
    struct Options : StoreEngine::Options {
        /// To accepted connections, not to adopted ones. Empty: all may stay. Must not call the
        /// server.
        Objection objection;
    };

    explicit StoreServer(boost::asio::io_context& io);
    StoreServer(boost::asio::io_context& io, Options options);
    /// As `close`.
    ~StoreServer();
    StoreServer(const StoreServer&) = delete;
    StoreServer& operator=(const StoreServer&) = delete;

    /// Accepts clients from `acceptor`, which listens already (see net::listen_on). A former
    /// acceptor is closed.
    void serve(boost::asio::ip::tcp::acceptor acceptor);

    /// Serves a client that was accepted elsewhere and has already sent `first_bytes`.
    void adopt(boost::asio::ip::tcp::socket socket, std::string_view first_bytes);

    // As those of StoreEngine.
    ClientId attach(FarEnd& far_end);
    void receive(ClientId client, std::string_view bytes);
    void resume(ClientId client);
    void detach(ClientId client);
    Result<void> set(std::string_view key, std::string_view value);
    void delete_key(std::string_view key);

    [[nodiscard]] std::size_t clients_count() const noexcept;
    /// The addresses of a client's connection: the server's, as the client reached it, and the
    /// client's. "unspecified" for a disconnected client and for one without a socket.
    [[nodiscard]] boost::asio::ip::address local_address(ClientId client) const;
    [[nodiscard]] boost::asio::ip::address peer_address(ClientId client) const;

    /// Disconnects all clients and forgets all keys. Continues to accept clients, which find an
    /// empty store.
    void reset();

    /// As `reset`, and stops listening.
    void close();

   private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::store
