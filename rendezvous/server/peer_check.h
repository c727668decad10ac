// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>
#include <string>

#include <boost/asio/awaitable.hpp>

#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/server/peer_log.h"
#include "rendezvous/server/session.h"

namespace regroup::rendezvous {

/// The connection cannot have left this host.
[[nodiscard]] bool is_within_this_host(const Session& session);

/// Finds out who a peer is, by TLS or by its user, and says what it may do.
class PeerCheck {
   public:
    /// `log` outlives it.
    PeerCheck(PeerLog& log, security::Credentials credentials)
        : log_(log), credentials_(std::move(credentials)) {}

    [[nodiscard]] const security::Credentials& credentials() const noexcept { return credentials_; }
    /// Reads the certificates. Otherwise that is done when a peer speaks TLS. Errors: those of
    /// Tls::server.
    Result<void> open_tls();

    /// False: nothing can be read from the session. `check` and the session live until the end.
    static boost::asio::awaitable<bool> identify(PeerCheck& check,
                                                 std::shared_ptr<Session> session);

    /// Why a peer that has proved nothing is refused.
    [[nodiscard]] std::string objection(const Session& session) const;
    /// Why a connection without TLS must not reach a store; empty if it may.
    [[nodiscard]] std::string objection_to_store(const Session& session);
    /// The same for a connection that is no session.
    [[nodiscard]] std::optional<std::string> objection_to_stranger(
        const boost::asio::ip::tcp::endpoint& ours, const boost::asio::ip::tcp::endpoint& theirs) {
        return users_.object_to_stranger(ours, theirs);
    }
    /// Why the peer may not send `message`; empty if it may. If the peer may see one job only, a
    /// request for any job becomes one for that.
    [[nodiscard]] static std::string objection(const Session& session, FromAgent& message);

   private:
    static boost::asio::awaitable<bool> shake_hands(PeerCheck& check,
                                                    std::shared_ptr<Session> session);
    void identify_by_user(Session& session);

    PeerLog& log_;
    const security::Credentials credentials_;
    security::PeerUsers users_;
    std::optional<security::Tls> tls_;
};

}  // namespace regroup::rendezvous
