// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/client/endpoint.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/store_server/store_server.h"

namespace regroup::store {
class RelayClient;
class RelayServer;
}  // namespace regroup::store

namespace regroup::agent {

/// How the workers of a round reach its store, which the agent of group rank 0 serves. The same on
/// all nodes of a job.
enum class StoreMode : std::uint8_t {
    /// All nodes are on this host. The store is reached from this host only, by processes of this
    /// user or of root.
    local,
    /// Workers connect to their own agent, which lets in processes of this user or of root. The
    /// agents carry these connections over TLS, with the store key of the round.
    relay,
    /// Any process that reaches the host connects.
    direct,
};

struct RoundStoreOptions {
    StoreMode mode = StoreMode::local;
    /// If not 0, the daemon in this process passes store connections from this port, its own, to
    /// the agent in every round. If 0, each round has a store port of its own. Not used with
    /// StoreMode::relay.
    std::uint16_t fixed_port = 0;
    store::Dialect dialect = store::Dialect::v1_13;  ///< See StoreServer::Options.
};

/// One node's part in the store of each round. A socket serves one round; the next one needs a new
/// one. One thread, which outlives this object.
class RoundStore {
   public:
    using Say = std::function<void(const std::string& line)>;

    RoundStore(boost::asio::io_context& io, RoundStoreOptions options, Say say);
    ~RoundStore();
    RoundStore(const RoundStore&) = delete;
    RoundStore& operator=(const RoundStore&) = delete;

    /// Opens the sockets for the next round, those that the last one has used up. Returns the port
    /// at which other nodes find the store if this one gets group rank 0. Errors: system.
    Result<std::uint16_t> offer();

    /// Ends the store of the last round, and serves this one or relays to it. Uses up the offer.
    void begin(const rendezvous::Assignment& assignment);
    /// Where this node's workers find the store of the round, if not at the master.
    [[nodiscard]] const std::optional<rendezvous::Endpoint>& relay() const noexcept {
        return relay_;
    }

    /// Those of the store that this node serves.
    [[nodiscard]] bool has_clients() const noexcept { return server_.clients_count() > 0; }

    /// Serves a client that the daemon in this process has accepted and checked, with its first
    /// bytes.
    void adopt(boost::asio::ip::tcp::socket socket, std::string_view first_bytes);

   private:
    [[nodiscard]] bool is_fixed() const noexcept;
    void relay_for(const rendezvous::Assignment& assignment);
    void tell(const std::string& sentence);
    [[nodiscard]] store::Objection objection();

    boost::asio::io_context& io_;
    const RoundStoreOptions options_;
    Say say_;
    security::PeerUsers peer_users_;
    int told_ = 0;  ///< Sentences in this round.
    store::StoreServer server_;
    std::unique_ptr<store::RelayServer> relay_server_;
    std::unique_ptr<store::RelayClient> relay_client_;
    std::optional<boost::asio::ip::tcp::acceptor> offered_;
    std::optional<boost::asio::ip::tcp::acceptor> own_;  ///< With StoreMode::relay: for workers.
    std::optional<rendezvous::Endpoint> relay_;
};

}  // namespace regroup::agent
