// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/address.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/store/store_core.h"
#include "rendezvous/store/store_limits.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::store {

/// Sees the requests of a StoreServer's clients before they are executed.
class RequestListener {
   public:
    virtual ~RequestListener() = default;

    /// Called before a request is executed. Return false to skip the request, which is allowed only
    /// for requests without a reply. May call the server's `set`, `delete_key` and const functions.
    /// `set` may drop clients and then calls `part` before it returns.
    virtual bool hear(ClientId client, const Request& request) = 0;
    /// The client has disconnected. It may never have sent a request. Must not call the server.
    virtual void part(ClientId client) = 0;
};

/// Serves one store to TCPStore clients. No client can harm another: a client that breaks the
/// protocol or does not read its replies is disconnected, and half a request simply waits.
///
/// All calls from the io_context's only thread. The io_context outlives the server; handlers that
/// are still queued when the server is destroyed do nothing.
class StoreServer {
   public:
    struct Options {
        Limits limits;
        /// The dialect of clients that do not begin with a greeting.
        Dialect older_dialect = Dialect::v1_13;
        /// Outlives the server; nullptr for none.
        RequestListener* listener = nullptr;
        /// Called with a sentence when the server disconnects a client, but not when a client
        /// leaves. Must not call the server.
        std::function<void(const std::string& sentence)> on_refusal;
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

    /// Sets a key with the same checks as for a client.
    Result<void> set(std::string_view key, std::string_view value);
    void delete_key(std::string_view key);

    [[nodiscard]] std::size_t clients_count() const noexcept;
    /// The addresses of a client's connection: the server's, as the client reached it, and the
    /// client's. "unspecified" for a disconnected client.
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
