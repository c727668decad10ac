// SPDX-License-Identifier: Apache-2.0
//
// The identity of a peer, and its rights.
#include <optional>
#include <utility>

#include <boost/asio/write.hpp>

#include "rendezvous/net/address.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/server/daemon_impl.h"

namespace regroup::rendezvous {

namespace {

constexpr int kTlsHandshake = 0x16;  // The first byte of a connection that speaks TLS.

}  // namespace

Result<void> Daemon::Impl::open_tls() {
    Result<security::Tls> made = security::Tls::server(credentials);
    if (!made) {
        return made.error();
    }
    tls = std::move(*made);
    return {};
}

asio::awaitable<bool> Daemon::Impl::identify(std::shared_ptr<Impl> self,
                                             std::shared_ptr<Session> session) {
    const int first = co_await session->stream.peek();
    if (self->closed || !session->stream.is_open()) {
        co_return false;
    }
    if (first == kTlsHandshake) {
        co_return co_await shake_hands(self, session);
    }
    self->identify_plain(*session);
    if (session->goes_to_store) {
        self->hand_to_store(*session);
        co_return false;
    }
    co_return first >= 0;
}

asio::awaitable<bool> Daemon::Impl::shake_hands(std::shared_ptr<Impl> self,
                                                std::shared_ptr<Session> session) {
    if (!self->tls && self->credentials.can_prove()) {
        if (const Result<void> opened = self->open_tls(); !opened) {
            self->log_refusal("TLS", *session, "cannot speak TLS: " + opened.error().detail);
        }
    }
    if (!self->tls) {
        // An alert tells the client more than the end of the connection would.
        constexpr std::string_view kHandshakeFailure("\x15\x03\x03\x00\x02\x02\x28", 7);
        self->log_refusal("TLS", *session,
                          "refused " + session->peer +
                              ", which speaks TLS: this daemon has no token and no certificate");
        ErrorCode ignored;
        asio::write(session->stream.socket(), asio::buffer(kHandshakeFailure), ignored);
        co_return false;
    }
    const Result<void> shaken = co_await session->stream.shake_hands(self->tls->connection());
    if (self->closed || !session->stream.is_open()) {
        co_return false;
    }
    const Result<security::Peer> peer =
        shaken ? security::Tls::peer_of(session->stream.ssl()) : shaken.error();
    if (!peer) {
        self->log_refusal("TLS", *session,
                          "refused " + session->peer + ": it " + peer.error().detail);
        co_return false;
    }
    session->proven = *peer;
    co_return true;
}

void Daemon::Impl::identify_plain(Session& session) {
    ErrorCode error;
    const tcp::endpoint ours = session.stream.socket().local_endpoint(error);
    const tcp::endpoint theirs = session.stream.socket().remote_endpoint(error);
    if (!error && security::is_within_this_host(ours, theirs)) {
        const Result<std::optional<uid_t>> user = peer_users.user_of_peer(ours, theirs);
        if (!user) {
            log_refusal("user", session,
                        "the kernel cannot be asked for the user of " + session.peer + ": " +
                            user.error().detail);
        } else if (*user && security::is_trusted(**user)) {
            session.proven = security::Peer{security::Scope(), security::user_text(**user)};
            return;
        }
    }
    if (credentials.insecure) {
        session.proven = security::Peer{security::Scope(), "anybody"};
    }
}

void Daemon::Impl::log_operator(const Session& session, const FromAgent& message) const {
    const auto* operate = std::get_if<Operate>(&message);
    // Who follows a log asks again and again.
    const bool goes_on = operate != nullptr && operate->action == Operate::Action::logs &&
                         session.status_due != Instant{};
    if (operate == nullptr || only_reads(operate->action) || goes_on) {
        return;
    }
    log((operate->job.empty() ? "" : "job " + operate->job + ": ") +
        std::string(to_string(operate->action)) +
        (operate->node.empty() ? "" : " of " + operate->node) + " asked for by " + operate->author +
        " (" + session.proven->name + ") from " + session.peer);
}

std::string Daemon::Impl::objection(const Session& session) const {
    ErrorCode error;
    const tcp::endpoint ours = session.stream.socket().local_endpoint(error);
    const tcp::endpoint theirs = session.stream.socket().remote_endpoint(error);
    const bool is_here = !error && security::is_within_this_host(ours, theirs);
    if (!credentials.can_prove()) {
        return is_here ? "this daemon serves only its own user; other users of this host need the "
                         "token of a daemon that has one (--token-file)"
                       : "this daemon serves only its own host; start it with a token "
                         "(--token-file), with certificates (--tls-cert) or with --insecure";
    }
    return "this daemon wants a token or a certificate; give the same token file as to the daemon "
           "(--token-file or REGROUP_TOKEN_FILE), or --tls-cert, --tls-key and --tls-ca";
}

std::string Daemon::Impl::objection_to_store(const Session& session) {
    if (!store_handler && !store) {
        return "this daemon serves no torchrun launchers; start it with --serve-torchrun if it "
               "should";
    }
    if (session.proven && !session.stream.is_secured()) {
        return "";
    }
    // Clients of PyTorch know no TLS, so a token or a certificate cannot help.
    ErrorCode error;
    const tcp::endpoint ours = session.stream.socket().local_endpoint(error);
    const tcp::endpoint theirs = session.stream.socket().remote_endpoint(error);
    const auto why = error ? std::nullopt : peer_users.object_to_stranger(ours, theirs);
    return why.value_or("the store is served without TLS only") +
           "; only a daemon with --insecure serves others";
}

std::string Daemon::Impl::objection(const Session& session, FromAgent& message) {
    using security::Role;
    const security::Peer& peer = *session.proven;
    const std::string& job = peer.scope.job;
    if (const auto* join = std::get_if<Join>(&message)) {
        if (!security::may_join(peer.scope.role)) {
            return "the " + peer.name + " may not join a job; that takes the role node";
        }
        return job.empty() || job == join->job ? "" : "the " + peer.name + " is for that job only";
    }
    if (auto* operate = std::get_if<Operate>(&message)) {
        if (!only_reads(operate->action) && !security::may_operate(peer.scope.role)) {
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
