// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/net/name_lookup.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"

namespace regroup::store {

/// Makes TLS connections to the RelayServer at one place. All calls from the io_context's only
/// thread, which outlives it.
class Dialer {
   public:
    Dialer(boost::asio::io_context& io, std::string host, std::uint16_t port, security::Tls tls)
        : io_(io), host_(std::move(host)), port_(port), tls_(std::move(tls)), limit_(io) {}

    /// Tries once. The server may not serve yet when its kernel accepts, so the handshake has until
    /// `last`. The object outlives the call. Errors: disconnected, with the predicate of a sentence
    /// about the server.
    boost::asio::awaitable<Result<std::unique_ptr<security::Stream>>> dial(Instant last);
    /// Ends the call in progress, if there is one, and all later ones.
    void close();

    [[nodiscard]] std::string place() const { return host_ + " port " + std::to_string(port_); }

   private:
    using Endpoints = std::vector<boost::asio::ip::tcp::endpoint>;
    boost::asio::awaitable<Result<Endpoints>> addresses();
    void limit_attempt(Instant end);

    boost::asio::io_context& io_;
    const std::string host_;
    const std::uint16_t port_;
    const security::Tls tls_;
    /// A name server may take longer than an attempt: a later one uses its answer.
    std::unique_ptr<net::NameLookup> lookup_;
    boost::asio::steady_timer limit_;
    std::unique_ptr<security::Stream> stream_;  ///< Of the attempt in progress.
    bool closed_ = false;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

}  // namespace regroup::store
