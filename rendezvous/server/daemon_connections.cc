// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/net/await.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/server/daemon_impl.h"
#include "rendezvous/server/first_bytes.h"

namespace regroup::rendezvous {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using net::kAwait;

// Small, since a heartbeat has about 100 bytes and there are thousands of connections.
constexpr std::size_t kReadBytes = 4096;
// Between two looks for room for another stranger.
constexpr std::chrono::milliseconds kFullPause(5);
constexpr std::chrono::milliseconds kShortagePause(200);
/// Hosts whose store clients speak an older dialect are remembered, up to this many.
constexpr std::size_t kOlderHostsMax = 4096;

}  // namespace

asio::awaitable<void> Daemon::Impl::accept(std::shared_ptr<Impl> self) {
    asio::steady_timer pause(self->io);
    while (!self->closed) {
        if (!self->connections->make_room()) {
            pause.expires_after(kFullPause);
            co_await pause.async_wait(kAwait);
            continue;
        }
        auto [error, socket] = co_await self->acceptor->async_accept(kAwait);
        if (self->closed) {
            co_return;
        }
        if (!error) {
            if (const Held connection =
                    self->connections->open(self->connections, std::move(socket))) {
                asio::co_spawn(self->io, serve(self, connection), asio::detached);
            }
            continue;
        }
        if (error == asio::error::no_descriptors && self->connections->make_room_at_once()) {
            continue;
        }
        // Wait for descriptors to be freed instead of spinning.
        self->log("cannot accept a connection: " + error.message());
        pause.expires_after(kShortagePause);
        co_await pause.async_wait(kAwait);
    }
}

std::size_t Daemon::Impl::members_count() const {
    return connections->count() - connections->strangers_count() + door->connections_count() +
           (store ? store->clients_count() : 0);
}

bool Daemon::Impl::promote(Connection& connection, const FromAgent& message) {
    if (connection.stranger == 0) {
        return true;
    }
    // A node that comes back is not kept out: its older connection ends.
    if (members_count() >= limits.sessions_max && !jobs->has_place(message)) {
        peers_log.refuse(
            *connection.session, Errc::overloaded,
            "the daemon has " + std::to_string(members_count()) + " connections already");
        return false;
    }
    connections->promote(connection);
    return true;
}

asio::awaitable<void> Daemon::Impl::serve(std::shared_ptr<Impl> self, Held connection) {
    std::vector<char> buffer(kReadBytes);
    security::Stream& stream = connection->session->stream;
    bool open = co_await PeerCheck::identify(self->peers, connection->session);
    if (connection->goes_to_store && !self->closed) {
        self->hand_to_store(*connection);
    }
    open = open && !self->closed && !connection->goes_to_store;
    while (open && stream.is_open()) {
        const auto [error, count] = co_await stream.read_some(asio::buffer(buffer));
        if (error || !stream.is_open()) {
            break;  // The session was closed meanwhile, perhaps with the Daemon.
        }
        const std::string_view bytes(buffer.data(), count);
        self->counters.bytes_in += count;
        open = connection->protocol_told ? self->consume(*connection, bytes)
                                         : self->begin(*connection, bytes);
        self->connections->charge(*connection);
    }
    self->end(connection);
}

void Daemon::Impl::end(const Held& connection) {
    connection->session->close();
    if (jobs) {
        jobs->end(connection->session);
    }
    connections->end(connection);
}

bool Daemon::Impl::begin(Connection& connection, std::string_view bytes) {
    connection.first_bytes.append(bytes);
    switch (tell_protocol(connection.first_bytes)) {
        case PortProtocol::undecided:
            return true;
        case PortProtocol::control:
            connection.protocol_told = true;
            return consume(connection, std::exchange(connection.first_bytes, {}));
        case PortProtocol::http:
            hand_to_http(connection);
            return false;
        case PortProtocol::store:
            break;
    }
    hand_to_store(connection);
    return false;
}

void Daemon::Impl::hand_to_store(Connection& connection) {
    Session& session = *connection.session;
    const std::string why =
        store_handler || store
            ? peers.objection_to_store(session)
            : "this daemon serves no torchrun launchers; start it with --serve-torchrun if it "
              "should";
    if (!why.empty()) {
        peers_log.say_refused("store client", session,
                              "refused a store client at " + session.peer.text + ": " + why);
        return;
    }
    const bool is_older = !connection.first_bytes.starts_with(std::string_view("\0\xCE", 2));
    if (is_older && older_hosts.size() < kOlderHostsMax) {
        older_hosts.insert(session.peer.address);
    }
    connection.protocol_told = true;
    if (store_handler) {
        store_handler(std::move(session.stream.socket()), std::move(connection.first_bytes));
        return;
    }
    store->adopt(std::move(session.stream.socket()), connection.first_bytes);
}

void Daemon::Impl::hand_to_http(Connection& connection) {
    Session& session = *connection.session;
    connection.protocol_told = true;
    if (members_count() >= limits.sessions_max) {
        peers_log.say_refused("HTTP room", session,
                              "disconnected the HTTP client " + session.peer.text +
                                  ": the daemon has " + std::to_string(members_count()) +
                                  " connections already");
        return;
    }
    http::Client client;
    client.peer = session.peer.text;
    client.address = session.peer.address;
    client.is_here = is_within_this_host(session);
    client.is_secured = session.stream.is_secured();
    client.proven = session.peer.proven;
    client.objection = session.peer.proven ? "" : peers.objection(session);
    door->adopt(std::move(session.stream), std::move(connection.first_bytes), std::move(client));
}

bool Daemon::Impl::consume(Connection& connection, std::string_view bytes) {
    Session& session = *connection.session;
    // Further bytes of a refused peer are read and discarded, so that it can read the refusal
    // instead of getting a connection reset.
    if (!session.is_finishing()) {
        connection.reader.feed(bytes);
    }
    if (!session.peer.proven && !session.is_finishing()) {
        peers_log.refuse(session, Errc::invalid_argument, peers.objection(session));
    }
    while (session.is_open()) {
        const Result<std::optional<std::string>> payload = connection.reader.next();
        if (!payload) {
            peers_log.refuse(session, payload.error().code, payload.error().detail);
            break;
        }
        if (!*payload) {
            return true;
        }
        if (!take(connection, **payload)) {
            break;
        }
    }
    return session.stream.is_open();
}

bool Daemon::Impl::take(Connection& connection, const std::string& payload) {
    Session& session = *connection.session;
    ++counters.messages_in;
    Result<FromAgent> message = protocol::decode_from_agent(payload);
    if (!message) {
        peers_log.refuse(session, message.error().code, message.error().detail);
        return false;
    }
    if (const std::string why = PeerCheck::objection(session, *message); !why.empty()) {
        peers_log.refuse(session, Errc::invalid_argument, why);
        return false;
    }
    if (!promote(connection, *message)) {
        return false;
    }
    log_operator(session, *message);
    ++counters.requests[message->index()];
    jobs->handle(connection.session, std::move(*message));
    connections->hear(connection);
    return true;
}

void Daemon::Impl::log_operator(const Session& session, const FromAgent& message) const {
    const auto* operate = std::get_if<Operate>(&message);
    // A reader that follows a log asks again and again.
    const bool goes_on = operate != nullptr && operate->action == Operate::Action::logs &&
                         session.next_request != Instant{};
    if (operate == nullptr || goes_on) {
        return;
    }
    log((operate->job.empty() ? "" : "job " + operate->job + ": ") +
        std::string(to_string(operate->action)) +
        (operate->node.empty() ? "" : " of " + operate->node) + " asked for by " + operate->author +
        " (" + session.peer.name() + ") from " + session.peer.text);
}

// PyTorch 1.13 opens a second connection for each store. It sends nothing on it, but fails when it
// is closed.
void Daemon::Impl::expire(Connection& connection) {
    Session& session = *connection.session;
    if (connection.protocol_told || !connection.first_bytes.empty() || session.stream.ssl() ||
        !older_hosts.contains(session.peer.address)) {
        session.close();
        return;
    }
    connection.goes_to_store = true;
    boost::system::error_code ignored;
    session.stream.socket().cancel(ignored);
}

}  // namespace regroup::rendezvous
