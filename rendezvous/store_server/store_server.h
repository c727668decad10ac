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

/// Looks over a StoreServer's shoulder, for an owner whose store answers for more than its keys.
class RequestListener {
   public:
    virtual ~RequestListener() = default;

    /// Before a request is carried out. False: it is not to be carried out, which only a request
    /// without a reply can bear. May call the server's `set` and `delete_key`, and what
    /// only asks; `set` may drop clients, of which `part` tells from within.
    virtual bool hear(ClientId client, const Request& request) = 0;
    /// The client is gone, if it was ever heard. Must not call the server.
    virtual void part(ClientId client) = 0;
};

/// Serves one store to TCPStore clients. What one client does, or fails to do, harms no other: a
/// client that breaks the protocol or does not read its replies is disconnected, one that sends
/// half a request is simply not finished.
///
/// All calls from the io_context's only thread. The io_context outlives the server; handlers that
/// are still queued when the server is destroyed do nothing.
class StoreServer {
   public:
    struct Options {
        Limits limits;
        /// What clients speak that do not begin with a greeting.
        Dialect older_dialect = Dialect::v1_13;
        /// Outlives the server; nullptr for none.
        RequestListener* listener = nullptr;
        /// Told, in a sentence, why a client was disconnected. Clients that leave are no news.
        /// Must not call the server.
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

    /// Sets a key, as a client would. Refused as a client would be.
    Result<void> set(std::string_view key, std::string_view value);
    void delete_key(std::string_view key);

    [[nodiscard]] std::size_t clients_count() const noexcept;
    /// The addresses of a client's connection, "unspecified" for one that is gone: ours, as the
    /// client reached us, and its own.
    [[nodiscard]] boost::asio::ip::address local_address(ClientId client) const;
    [[nodiscard]] boost::asio::ip::address peer_address(ClientId client) const;

    /// Disconnects all clients and forgets all keys. Goes on accepting: the next client finds an
    /// empty store.
    void reset();

    /// As `reset`, and stops listening.
    void close();

   private:
    class Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::store
