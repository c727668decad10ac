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
#include <boost/asio/posix/stream_descriptor.hpp>

#include "rendezvous/net/accept_loop.h"
#include "rendezvous/store/store_engine.h"
#include "rendezvous/store_server/socket.h"

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
    void receive(ClientId client, std::string_view bytes) { engine_.receive(client, bytes); }
    void resume(ClientId client) { engine_.resume(client); }
    void detach(ClientId client) { engine_.detach(client); }
    Result<void> set(std::string_view key, std::string_view value) {
        return engine_.set(key, value);
    }
    void delete_key(std::string_view key) { engine_.delete_key(key); }
    [[nodiscard]] std::size_t clients_count() const noexcept { return engine_.clients_count(); }

    /// The address of one end of a client's connection: the server's as the client reached it, or
    /// the client's. "unspecified" for a disconnected client and for one without a socket.
    [[nodiscard]] boost::asio::ip::address address_of(ClientId client, End end) {
        return endpoint_of(engine_.socket_of(client), end).address();
    }

    /// Disconnects all clients and forgets all keys. Continues to accept clients, which find an
    /// empty store.
    void reset() { engine_.reset(); }

    /// As `reset`, and stops listening.
    void close();

   private:
    void accepted(UniqueFd socket);
    void admit(UniqueFd socket, std::string_view first_bytes);
    void watch_ready();
    void await_ready();

    const Objection objection_;
    StoreEngine engine_;
    boost::asio::posix::stream_descriptor ready_events_;  ///< Borrows the engine's descriptor.
    net::AcceptLoop accept_loop_;
    /// Handlers hold it weakly, which shows whether the server still exists.
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::store
