// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/store/store_limits.h"

namespace regroup::store {

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
    void adopt(boost::asio::ip::tcp::socket socket, std::string first_bytes);

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
