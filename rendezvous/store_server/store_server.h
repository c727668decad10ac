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

/// Says why a connection that was just accepted must not stay, as the predicate of a sentence about
/// it ("it belongs to user ann"); nothing if it may. Gets its ends as sockets know them.
using Objection = std::function<std::optional<std::string>(
    const boost::asio::ip::tcp::endpoint& ours, const boost::asio::ip::tcp::endpoint& theirs)>;

/// The other end of a client without a socket: another object of this thread passes its bytes on.
/// Its functions must not call the server.
class FarEnd {
   public:
    virtual ~FarEnd() = default;

    /// Takes some of the bytes that the server sends, and returns their count. After it took less
    /// than all, its owner calls `StoreServer::resume` when it can take more.
    virtual std::size_t take(std::string_view bytes) = 0;
    /// The server has disconnected the client.
    virtual void closed() = 0;
    /// For messages: "a worker behind 10.0.0.2:40000".
    [[nodiscard]] virtual std::string name() const = 0;
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
        /// To accepted connections, not to adopted ones. Empty: all may stay. Must not call the
        /// server.
        Objection objection;
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

    /// Serves a client without a socket, with the limits of all others. `far_end` stays until the
    /// client is detached, or `closed`.
    ClientId attach(FarEnd& far_end);
    /// The client has sent `bytes`.
    void receive(ClientId client, std::string_view bytes);
    /// The far end takes bytes again.
    void resume(ClientId client);
    /// The client has disconnected. The far end is not called any more. Does nothing when that
    /// client is no longer there.
    void detach(ClientId client);

    /// Sets a key with the same checks as for a client.
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
