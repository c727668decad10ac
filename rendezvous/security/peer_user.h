// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include <boost/asio/ip/tcp.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::security {

/// True if a connection with these two ends cannot have left this machine.
[[nodiscard]] bool is_within_this_host(const boost::asio::ip::tcp::endpoint& ours,
                                       const boost::asio::ip::tcp::endpoint& theirs);

/// True for the user of this process, and for root.
[[nodiscard]] bool is_trusted(uid_t user) noexcept;

/// The kernel knows which user of this machine owns a TCP socket. Between two processes of one
/// machine that is proof of who the other is, without any secret. (Linux: sock_diag(7), or
/// /proc/net/tcp where that is not allowed.)
///
/// Holds the descriptors that asking takes, so that a process that has used up all others can still
/// tell its own user from a stranger. The functions do not block. One thread.
class PeerUsers {
   public:
    using Endpoint = boost::asio::ip::tcp::endpoint;

    PeerUsers();

    /// The user whose process holds the other end of a connection; nothing if no process of this
    /// network namespace does, or none does any more. Errors: system, if the kernel cannot be
    /// asked.
    [[nodiscard]] Result<std::optional<uid_t>> user_of_peer(const Endpoint& ours,
                                                            const Endpoint& theirs);

    /// The user whose process listens on `where`. Errors: as of user_of_peer().
    [[nodiscard]] Result<std::optional<uid_t>> user_who_listens(const Endpoint& where);

    /// Why a connection without a secret is not one of this user's: the predicate of a sentence
    /// about the peer, "it belongs to user ann". Nothing if its other end is a process of a trusted
    /// user on this host.
    [[nodiscard]] std::optional<std::string> object_to_stranger(const Endpoint& ours,
                                                                const Endpoint& theirs);

   private:
    struct Owner;
    /// A descriptor, or the reason why there is none.
    struct Source {
        UniqueFd fd{};
        int error = 0;
    };

    /// `remote` with port 0: the socket that listens.
    struct Ends {
        Endpoint local;
        Endpoint remote;
    };

    Result<std::optional<uid_t>> user_of(const std::vector<Ends>& places,
                                         bool (*fits)(unsigned state));
    Result<std::optional<Owner>> ask_kernel(const Endpoint& local, const Endpoint& remote);
    static Result<std::optional<Owner>> look_up(const Source& table, const std::string& local,
                                                const std::string& remote);
    Result<std::optional<Owner>> owner_in_tables(const Endpoint& local, const Endpoint& remote);

    Source netlink_;
    Source tcp_;
    Source tcp6_;
    std::uint32_t questions_ = 0;
};

/// "user ann", or "user 1001" without a name.
[[nodiscard]] std::string user_text(uid_t user);

}  // namespace regroup::security
