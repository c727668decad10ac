// SPDX-License-Identifier: Apache-2.0
#include "agent/store/round_store.h"

#include <utility>

#include "rendezvous/net/listen.h"
#include "rendezvous/security/key.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/store_relay/relay_client.h"
#include "rendezvous/store_relay/relay_server.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;

// Strangers can cause sentences at any rate.
constexpr int kToldMax = 10;

}  // namespace

RoundStore::RoundStore(asio::io_context& io, RoundStoreOptions options, Say say)
    : io_(io), options_(options), say_(std::move(say)), server_(io, [this] {
          store::StoreServer::Options server;
          server.older_dialect = options_.dialect;
          server.objection = objection();
          server.on_refusal = [this](const std::string& sentence) { tell(sentence); };
          return server;
      }()) {}

RoundStore::~RoundStore() = default;

store::Objection RoundStore::objection() {
    if (options_.mode == StoreMode::direct) {
        return {};
    }
    return [this](const tcp::endpoint& ours, const tcp::endpoint& theirs) {
        return peer_users_.object_to_stranger(ours, theirs);
    };
}

bool RoundStore::is_fixed() const noexcept {
    return options_.fixed_port != 0 && options_.mode != StoreMode::relay;
}

Result<std::uint16_t> RoundStore::offer() {
    if (is_fixed()) {
        return options_.fixed_port;
    }
    if (!offered_) {
        Result<tcp::acceptor> offered = options_.mode == StoreMode::local
                                            ? net::listen_within_host(io_, 0)
                                            : net::listen_on(io_, "", 0);
        if (!offered) {
            return offered.error();
        }
        offered_.emplace(std::move(*offered));
    }
    if (!own_ && options_.mode == StoreMode::relay) {
        Result<tcp::acceptor> own = net::listen_on_loopback(io_, 0);
        if (!own) {
            return own.error();
        }
        own_.emplace(std::move(*own));
    }
    return offered_->local_endpoint().port();
}

void RoundStore::begin(const rendezvous::Assignment& assignment) {
    told_ = 0;
    relay_.reset();
    relay_client_.reset();
    relay_server_.reset();
    if (is_fixed()) {
        if (assignment.group_rank == 0) {
            server_.reset();
        }
        return;
    }
    server_.close();
    if (options_.mode == StoreMode::relay) {
        relay_for(assignment);
    } else if (assignment.group_rank == 0 && offered_) {
        server_.serve(*std::exchange(offered_, std::nullopt));
    }
}

void RoundStore::relay_for(const rendezvous::Assignment& assignment) {
    if (!own_ || !offered_) {
        return;  // Said when it could not be offered.
    }
    const tcp::endpoint own = own_->local_endpoint();
    relay_ = rendezvous::Endpoint{own.address().to_string(), own.port()};
    const std::optional<security::Key> key = security::Key::from_secret(assignment.store_key);
    if (!key) {
        tell(
            "the node of group rank 0 gave no key for the store of the round; all nodes need the "
            "same version of regroup");
        own_.reset();
        return;
    }
    const std::string name = "regroup store, round " + std::to_string(number(assignment.round));
    const auto on_trouble = [this](const std::string& sentence) { tell(sentence); };
    if (assignment.group_rank != 0) {
        store::RelayClient::Options options;
        options.objection = objection();
        options.on_trouble = on_trouble;
        relay_client_ = std::make_unique<store::RelayClient>(
            io_, *std::exchange(own_, std::nullopt),
            store::RelayClient::Server{assignment.master_addr, assignment.master_port},
            security::Tls::client(*key, name), std::move(options));
        return;
    }
    store::RelayServer::Options options;
    options.on_refusal = on_trouble;
    server_.serve(*std::exchange(own_, std::nullopt));
    relay_server_ = std::make_unique<store::RelayServer>(
        io_, server_, security::Tls::server(*key, name), *std::exchange(offered_, std::nullopt),
        std::move(options));
}

void RoundStore::adopt(tcp::socket socket, std::string_view first_bytes) {
    if (is_fixed()) {
        server_.adopt(std::move(socket), first_bytes);
    } else {
        tell(
            "a client of the store came to the daemon; in this job workers reach the store through "
            "their own agent (MASTER_ADDR and MASTER_PORT)");
    }
}

void RoundStore::tell(const std::string& sentence) {
    if (told_ < kToldMax) {
        ++told_;
        say_(told_ < kToldMax ? sentence : sentence + " (further ones of this round are not told)");
    }
}

}  // namespace regroup::agent
