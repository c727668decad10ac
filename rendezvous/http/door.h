// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <set>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/http/guard.h"
#include "rendezvous/http/limits.h"
#include "rendezvous/http/pages.h"
#include "rendezvous/security/stream.h"

namespace regroup::http {

/// Serves HTTP on connections that were accepted elsewhere. All that clients can make it use is
/// bounded (Limits). Between two steps of its work, other handlers of the io_context run.
///
/// Everything runs on the io_context's one thread. All that is given to the constructor outlives
/// the Door; its handlers may run, cancelled, after its end.
class Door {
   public:
    /// `kind` is one of a few words, `address` an IP address: see LogLimiter.
    using Log = std::function<void(const std::string& kind, const std::string& address,
                                   const std::string& line)>;
    struct Inside {
        boost::asio::io_context& io;
        const Clock& clock;
        Pages& pages;
        const security::Credentials& credentials;
        /// The names of this host, in lower case, besides localhost and all addresses.
        const std::set<std::string>& hosts;
    };

    Door(const Inside& inside, const Limits& limits, Log log);
    ~Door();
    Door(const Door&) = delete;
    Door& operator=(const Door&) = delete;

    /// Serves a client that has already sent `first_bytes`.
    void adopt(security::Stream stream, std::string first_bytes, Client client);
    [[nodiscard]] std::size_t connections_count() const;
    /// True if nothing waits to be sent.
    [[nodiscard]] bool is_flushed() const;
    /// Disconnects clients whose time is over. To be called about once a second.
    void sweep();

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::http
