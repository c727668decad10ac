// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <sys/types.h>

#include <boost/asio/ip/tcp.hpp>

namespace regroup::security {

/// The kernel knows which user of this machine owns a TCP socket. Between two processes of one
/// machine that is proof of who the other is, without any secret. (Linux: sock_diag(7), or
/// /proc/net/tcp where that is not allowed.) The functions do not block.

/// True if a connection with these two ends cannot have left this machine.
[[nodiscard]] bool is_within_this_host(const boost::asio::ip::tcp::endpoint& ours,
                                       const boost::asio::ip::tcp::endpoint& theirs);

/// The user whose process holds the other end of a connection; nothing if no process of this
/// network namespace does, or none does any more.
[[nodiscard]] std::optional<uid_t> user_of_peer(const boost::asio::ip::tcp::endpoint& ours,
                                                const boost::asio::ip::tcp::endpoint& theirs);

/// The user whose process listens on `where`.
[[nodiscard]] std::optional<uid_t> user_who_listens(const boost::asio::ip::tcp::endpoint& where);

/// True for the user of this process, and for root.
[[nodiscard]] bool is_trusted(uid_t user) noexcept;

/// Why a connection without a secret is not one of this user's: the predicate of a sentence about
/// the peer, "it belongs to user ann". Nothing if its other end is a process of a trusted user on
/// this host.
[[nodiscard]] std::optional<std::string> object_to_stranger(
    const boost::asio::ip::tcp::endpoint& ours, const boost::asio::ip::tcp::endpoint& theirs);

/// "user ann", or "user 1001" without a name.
[[nodiscard]] std::string user_text(uid_t user);

}  // namespace regroup::security
