// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/peer_check.h"

#include <string_view>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/write.hpp>

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

constexpr int kTlsHandshake = 0x16;  // The first byte of a connection that speaks TLS.
// An alert tells the client more than the end of the connection would.
constexpr std::string_view kHandshakeFailure("\x15\x03\x03\x00\x02\x02\x28", 7);

struct Ends {
    tcp::endpoint ours;
    tcp::endpoint theirs;
};

/// Nothing if the peer has disconnected.
std::optional<Ends> ends_of(const Session& session) {
    ErrorCode error;
    const tcp::endpoint ours = session.stream.socket().local_endpoint(error);
    const tcp::endpoint theirs = session.stream.socket().remote_endpoint(error);
    return error ? std::nullopt : std::optional(Ends{ours, theirs});
}

}  // namespace

bool is_within_this_host(const Session& session) {
    const std::optional<Ends> ends = ends_of(session);
    return ends && security::is_within_this_host(ends->ours, ends->theirs);
}

Result<void> PeerCheck::open_tls() {
    Result<security::Tls> made = security::Tls::server(credentials_);
    if (!made) {
        return made.error();
    }
    tls_ = std::move(*made);
    return {};
}

asio::awaitable<bool> PeerCheck::identify(PeerCheck& check, std::shared_ptr<Session> session) {
    const int first = co_await session->stream.peek();
    if (!session->stream.is_open()) {
        co_return false;
    }
    if (first == kTlsHandshake) {
        // A handshake is dear. One that came late to its turn may have been given up.
        co_return !session->stream.has_hung_up() && co_await shake_hands(check, session);
    }
    check.identify_by_user(*session);
    co_return first >= 0;
}

asio::awaitable<bool> PeerCheck::shake_hands(PeerCheck& check, std::shared_ptr<Session> session) {
    const std::string& peer = session->peer.text;
    if (!check.tls_ && check.credentials_.can_prove()) {
        if (const Result<void> opened = check.open_tls(); !opened) {
            check.log_.say_refused("TLS", *session, "cannot speak TLS: " + opened.error().detail);
        }
    }
    if (!check.tls_) {
        check.log_.say_refused("TLS", *session,
                               "refused " + peer +
                                   ", which speaks TLS: this daemon has no token and no "
                                   "certificate");
        ErrorCode ignored;
        asio::write(session->stream.socket(), asio::buffer(kHandshakeFailure), ignored);
        co_return false;
    }
    const Result<void> shaken = co_await session->stream.shake_hands(check.tls_->connection());
    if (!session->stream.is_open()) {
        co_return false;
    }
    const Result<security::Peer> proven =
        shaken ? security::Tls::peer_of(session->stream.ssl()) : shaken.error();
    if (!shaken && session->stream.tls_error() == 0) {
        co_return false;  // It has given up.
    }
    if (!proven) {
        check.log_.say_refused("TLS", *session,
                               "refused " + peer + ": it " + proven.error().detail);
        co_return false;
    }
    session->peer.proven = *proven;
    co_return true;
}

void PeerCheck::identify_by_user(Session& session) {
    const std::optional<Ends> ends = ends_of(session);
    if (ends && security::is_within_this_host(ends->ours, ends->theirs)) {
        const Result<std::optional<uid_t>> user = users_.user_of_peer(ends->ours, ends->theirs);
        if (!user) {
            log_.say_refused("user", session,
                             "the kernel cannot be asked for the user of " + session.peer.text +
                                 ": " + user.error().detail);
        } else if (*user && security::is_trusted(**user)) {
            session.peer.proven = security::Peer{security::Scope(), security::user_text(**user)};
            return;
        }
    }
    if (credentials_.insecure) {
        session.peer.proven = security::Peer{security::Scope(), "anybody"};
    }
}

std::string PeerCheck::objection(const Session& session) const {
    if (!credentials_.can_prove()) {
        return is_within_this_host(session)
                   ? "this daemon serves only its own user; other users of this host need the "
                     "token of a daemon that has one (--token-file)"
                   : "this daemon serves only its own host; start it with a token "
                     "(--token-file), with certificates (--tls-cert) or with --insecure";
    }
    return "this daemon wants a token or a certificate; give the same token file as to the daemon "
           "(--token-file or REGROUP_TOKEN_FILE), or --tls-cert, --tls-key and --tls-ca";
}

std::string PeerCheck::objection_to_store(const Session& session) {
    if (session.peer.proven && !session.stream.is_secured()) {
        return "";
    }
    // Clients of PyTorch know no TLS, so a token or a certificate cannot help.
    const std::optional<Ends> ends = ends_of(session);
    const auto why = ends ? users_.object_to_stranger(ends->ours, ends->theirs) : std::nullopt;
    return why.value_or("the store is served without TLS only") +
           "; only a daemon with --insecure serves others";
}

std::string PeerCheck::objection(const Session& session, FromAgent& message) {
    using security::Role;
    const security::Peer& peer = *session.peer.proven;
    const std::string& job = peer.scope.job;
    if (const auto* join = std::get_if<Join>(&message)) {
        if (!security::may_join(peer.scope.role)) {
            return "the " + peer.name + " may not join a job; that takes the role node";
        }
        return job.empty() || job == join->job ? "" : "the " + peer.name + " is for that job only";
    }
    if (auto* operate = std::get_if<Operate>(&message)) {
        if (!security::may_operate(peer.scope.role)) {
            return "the " + peer.name + " may only read the status; to " +
                   std::string(to_string(operate->action)) + " takes the role operator";
        }
        if (!job.empty() && !operate->job.empty() && operate->job != job) {
            return "the " + peer.name + " is for that job only";
        }
        if (!job.empty()) {
            operate->job = job;
        }
    }
    return "";
}

}  // namespace regroup::rendezvous
