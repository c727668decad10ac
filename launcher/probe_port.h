// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/http/door.h"
#include "rendezvous/net/accept_loop.h"

namespace regroup::launcher {

/// The HTTP port of an agent for the probes of Kubernetes: /healthz is answered while the event
/// loop turns, and /readyz says whether the node has a place. Everybody may ask. It serves nothing
/// else, and a few connections at a time.
///
/// On the one thread of the io_context, which outlives it, as does the clock.
class ProbePort final : private http::Pages {
   public:
    struct State {
        bool ready = false;
        std::string text;  ///< "stands by"
    };
    using Look = std::function<State()>;

    ProbePort(boost::asio::io_context& io, const Clock& clock, Look look);
    ~ProbePort() override;

    /// Listens on all addresses. Errors: system, naming the holder of the port.
    Result<void> open(std::uint16_t port);

   private:
    [[nodiscard]] bool is_public(const std::string& path) const override;
    void answer(const http::Request& request, Reply reply) override;
    void adopt(int fd);
    void sweep();

    boost::asio::io_context& io_;
    const Look look_;
    const security::Credentials credentials_;
    const std::set<std::string> hosts_;
    http::Door door_;
    net::AcceptLoop accepting_;
    boost::asio::steady_timer timer_;
};

}  // namespace regroup::launcher
