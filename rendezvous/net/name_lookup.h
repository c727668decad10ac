// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/clock.h"

namespace regroup::net {

/// Looks up the addresses of a name. The C library may take a minute for that, and cannot be
/// interrupted. So a thread of its own does it, which nobody waits for: unlike Asio's resolver,
/// this delays neither other look-ups nor the end of the process.
///
/// All calls from the io_context's only thread. The io_context outlives the object.
class NameLookup {
   public:
    NameLookup(boost::asio::io_context& io, const std::string& host, std::uint16_t port);
    ~NameLookup();
    NameLookup(const NameLookup&) = delete;
    NameLookup& operator=(const NameLookup&) = delete;

    /// Returns when there is an answer, after `limit`, or when the object is destroyed. One caller
    /// at a time.
    boost::asio::awaitable<void> wait(Duration limit);

    [[nodiscard]] bool is_done() const;
    /// Once it is done: the addresses, in the order in which to try them, at most 16; empty after
    /// an error.
    [[nodiscard]] const std::vector<boost::asio::ip::tcp::endpoint>& found() const;
    /// Once it is done: why there are none; empty if there are some.
    [[nodiscard]] const std::string& error() const;
    /// No name server could tell. Otherwise, if there are no addresses, the name does not exist.
    [[nodiscard]] bool is_undecided() const;

   private:
    struct Impl;
    std::shared_ptr<Impl> impl_;
};

}  // namespace regroup::net
