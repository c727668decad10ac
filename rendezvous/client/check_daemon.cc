// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/check_daemon.h"

#include <unistd.h>
#include <utility>

#include "rendezvous/security/peer_user.h"

namespace regroup::rendezvous {

boost::asio::awaitable<Result<void>> check_daemon(security::Stream& stream, std::string host,
                                                  const security::Identity& identity,
                                                  std::optional<security::Tls>& tls) {
    const security::Credentials& credentials = identity.credentials;
    boost::system::error_code error;
    const auto ours = stream.socket().local_endpoint(error);
    const auto theirs = stream.socket().remote_endpoint(error);
    const bool is_here = !error && security::is_within_this_host(ours, theirs);
    const Result<std::optional<uid_t>> asked =
        is_here ? security::PeerUsers().user_who_listens(theirs) : std::optional<uid_t>();
    const std::optional<uid_t> user = asked ? *asked : std::nullopt;
    if (user == ::geteuid()) {
        co_return Result<void>();  // Each believes the other.
    }
    if (credentials.can_prove()) {
        if (!tls) {
            Result<security::Tls> made = security::Tls::client(credentials, identity.scope);
            if (!made) {
                co_return made.error();
            }
            tls = std::move(*made);
        }
        const Result<void> shaken = co_await stream.shake_hands(tls->connection(host));
        co_return shaken ? shaken
                         : Failure(Errc::disconnected, "the peer " + shaken.error().detail);
    }
    if (credentials.insecure || (user && security::is_trusted(*user))) {
        co_return Result<void>();
    }
    if (!asked) {
        co_return Failure(Errc::disconnected,
                          "the kernel cannot be asked which user serves that "
                          "port: " +
                              asked.error().detail);
    }
    const std::string ways =
        "; give the same token file to both (--token-file), or certificates (--tls-cert, "
        "--tls-key, --tls-ca), or --insecure";
    co_return Failure(Errc::disconnected,
                      user ? security::user_text(*user) + " serves that port, and not " +
                                 security::user_text(::geteuid()) + ways
                           : "nothing proves that it is this user's daemon" + ways);
}

}  // namespace regroup::rendezvous
