// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cctype>
#include <utility>
#include <vector>

#include <boost/asio/buffer.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>

#include "rendezvous/net/await.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/security/peer_user.h"
#include "rendezvous/server/daemon_impl.h"
#include "rendezvous/server/first_bytes.h"

namespace regroup::rendezvous {

namespace {

using net::kAwait;

// Small, since a heartbeat has about 100 bytes and there are thousands of connections.
constexpr std::size_t kReadBytes = 4096;
constexpr Duration kSweepInterval = std::chrono::seconds(1);

/// Hosts whose store clients speak an older dialect are remembered, up to this many.
constexpr std::size_t kOlderHostsMax = 4096;

}  // namespace

asio::awaitable<void> Daemon::Impl::accept(std::shared_ptr<Impl> self) {
    while (!self->closed) {
        auto [error, socket] = co_await self->acceptor->async_accept(kAwait);
        if (self->closed) {
            co_return;
        }
        if (!error) {
            self->open(std::move(socket));
            continue;
        }
        if (error == asio::error::no_descriptors && !self->strangers.empty()) {
            self->evict_oldest_stranger();
            continue;
        }
        // Wait for descriptors to be freed instead of spinning.
        self->log("cannot accept a connection: " + error.message());
        asio::steady_timer pause(self->io, std::chrono::milliseconds(200));
        co_await pause.async_wait(kAwait);
    }
}

void Daemon::Impl::open(tcp::socket socket) {
    const auto written = [impl = self](Session& sent, std::size_t bytes) {
        if (const auto alive = impl.lock()) {
            alive->traffic.bytes_out += bytes;
            alive->charge(sent);
            alive->check_flushed();
        }
    };
    auto session = std::make_shared<Session>(std::move(socket), written);
    if (!session->is_known()) {
        return;  // The peer is gone already.
    }
    if (strangers.size() >= limits.strangers_max) {
        evict_oldest_stranger();
    }
    ++counters.connections_accepted;
    session->expires = after(clock.now(), limits.hello_limit);
    session->stranger = ++last_stranger;
    strangers.emplace(session->stranger, session);
    sessions.insert(session);
    asio::co_spawn(io, serve(self.lock(), session), asio::detached);
}

void Daemon::Impl::evict_oldest_stranger() {
    const std::shared_ptr<Session> oldest = strangers.begin()->second;
    log_refusal("eviction", *oldest,
                "closed the connection of " + oldest->peer + ", the oldest of " +
                    std::to_string(strangers.size()) + " that have said nothing yet");
    strangers.erase(strangers.begin());
    oldest->stranger = 0;
    sessions.erase(oldest);
    oldest->close();
    charge(*oldest);
}

std::size_t Daemon::Impl::members_count() const {
    return sessions.size() - strangers.size() + door->connections_count() +
           (store ? store->clients_count() : 0);
}

bool Daemon::Impl::promote(const std::shared_ptr<Session>& session, const FromAgent& message) {
    if (session->stranger == 0) {
        return true;
    }
    // A node that comes back is not kept out: its older connection ends.
    if (members_count() >= limits.sessions_max && !jobs->has_place(message)) {
        refuse(session, Errc::overloaded,
               "the daemon has " + std::to_string(members_count()) + " connections already");
        return false;
    }
    strangers.erase(std::exchange(session->stranger, 0));
    return true;
}

asio::awaitable<void> Daemon::Impl::serve(std::shared_ptr<Impl> self,
                                          std::shared_ptr<Session> session) {
    std::vector<char> buffer(kReadBytes);
    bool open = co_await identify(self, session);
    while (open && session->stream.is_open()) {
        const auto [error, count] = co_await session->stream.read_some(asio::buffer(buffer));
        if (error || !session->stream.is_open()) {
            break;  // The session was closed meanwhile, perhaps with the Daemon.
        }
        const std::string_view bytes(buffer.data(), count);
        self->traffic.bytes_in += count;
        open = session->protocol_told ? self->consume(session, bytes) : self->begin(session, bytes);
        self->charge(*session);
    }
    self->end(session);
}

bool Daemon::Impl::begin(const std::shared_ptr<Session>& session, std::string_view bytes) {
    session->first_bytes.append(bytes);
    switch (tell_protocol(session->first_bytes)) {
        case PortProtocol::undecided:
            return true;
        case PortProtocol::control:
            session->protocol_told = true;
            return consume(session, std::exchange(session->first_bytes, {}));
        case PortProtocol::http:
            hand_to_http(*session);
            return false;
        case PortProtocol::store:
            break;
    }
    hand_to_store(*session);
    return false;
}

void Daemon::Impl::hand_to_store(Session& session) {
    if (const std::string why = objection_to_store(session); !why.empty()) {
        log_refusal("store client", session,
                    "refused a store client at " + session.peer + ": " + why);
        return;
    }
    const bool is_older = !session.first_bytes.starts_with(std::string_view("\0\xCE", 2));
    if (is_older && older_hosts.size() < kOlderHostsMax) {
        older_hosts.insert(session.address);
    }
    session.protocol_told = true;
    if (store_handler) {
        store_handler(std::move(session.stream.socket()), std::move(session.first_bytes));
        return;
    }
    store->adopt(std::move(session.stream.socket()), session.first_bytes);
}

void Daemon::Impl::hand_to_http(Session& session) {
    session.protocol_told = true;
    if (members_count() >= limits.sessions_max) {
        log_refusal("HTTP room", session,
                    "disconnected the HTTP client " + session.peer + ": the daemon has " +
                        std::to_string(members_count()) + " connections already");
        return;
    }
    ErrorCode error;
    const tcp::endpoint ours = session.stream.socket().local_endpoint(error);
    const tcp::endpoint theirs = session.stream.socket().remote_endpoint(error);
    http::Client client;
    client.peer = session.peer;
    client.address = session.address;
    client.is_here = !error && security::is_within_this_host(ours, theirs);
    client.is_secured = session.stream.is_secured();
    client.proven = session.proven;
    client.objection = session.proven ? "" : objection(session);
    door->adopt(std::move(session.stream), std::move(session.first_bytes), std::move(client));
}

bool Daemon::Impl::consume(const std::shared_ptr<Session>& session, std::string_view bytes) {
    // Further bytes of a refused peer are read and discarded, so that it can read the refusal
    // instead of getting a connection reset.
    if (!session->close_when_flushed) {
        session->reader.feed(bytes);
    }
    if (!session->proven && !session->close_when_flushed) {
        refuse(session, Errc::invalid_argument, objection(*session));
    }
    while (!session->close_when_flushed && session->stream.is_open()) {
        Result<std::optional<std::string>> payload = session->reader.next();
        if (!payload) {
            refuse(session, payload.error().code, payload.error().detail);
            break;
        }
        if (!*payload) {
            return true;
        }
        ++traffic.messages_in;
        Result<FromAgent> message = protocol::decode_from_agent(**payload);
        if (!message) {
            refuse(session, message.error().code, message.error().detail);
            break;
        }
        if (const std::string why = objection(*session, *message); !why.empty()) {
            refuse(session, Errc::invalid_argument, why);
            break;
        }
        if (!promote(session, *message)) {
            break;
        }
        log_operator(*session, *message);
        ++counters.requests[message->index()];
        jobs->handle(session, std::move(*message));
        const Instant now = clock.now();
        note_message(*session, now);
        if (!session->close_when_flushed) {
            session->expires = after(now, session->silence_limit);
        }
    }
    return session->stream.is_open();
}

namespace {

/// Adds the time of this host if the message can have it.
FromDaemon with_time(FromDaemon message, bool& told) {
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    const std::int64_t now_ms = std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
    if (auto* assign = std::get_if<Assign>(&message)) {
        assign->now_ms = now_ms;
        told = true;
    } else if (auto* waiting = std::get_if<Waiting>(&message)) {
        waiting->now_ms = now_ms;
        told = true;
    }
    return message;
}

}  // namespace

void Daemon::Impl::send(const std::shared_ptr<Session>& session, const FromDaemon& message) {
    if (!session->stream.is_open() || session->close_when_flushed) {
        return;
    }
    ++traffic.messages_out;
    std::string frame = protocol::make_frame(
        session->time_told ? protocol::encode(message)
                           : protocol::encode(with_time(message, session->time_told)));
    if (!Session::send(session, std::move(frame), limits.outbox_frames_max)) {
        log("disconnected " + session->peer + ": it does not read what it is sent");
        session->close();
    }
    charge(*session);
}

// By address, since all members may have one token: many small ones must not push out a node whose
// only message is large.
void Daemon::Impl::charge(Session& session) {
    held_bytes += session.held_bytes() - session.charged_bytes;
    session.charged_bytes = session.held_bytes();
    while (held_bytes > limits.sessions_bytes_max) {
        std::map<std::string, std::size_t> by_address;
        for (const auto& one : sessions) {
            by_address[one->address] += one->charged_bytes;
        }
        const auto holds_less = [&](const auto& a, const auto& b) {
            return std::pair(by_address.at(a->address), a->charged_bytes) <
                   std::pair(by_address.at(b->address), b->charged_bytes);
        };
        Session& most = **std::ranges::max_element(sessions, holds_less);
        log_refusal("memory", most,
                    "disconnected " + most.peer + ": all connections together hold " +
                        std::to_string(held_bytes) +
                        " bytes of messages that are not complete or not read, and its host most "
                        "of them; the limit is " +
                        std::to_string(limits.sessions_bytes_max));
        most.close();
        held_bytes -= std::exchange(most.charged_bytes, 0);
    }
}

void Daemon::Impl::send_parts(const std::shared_ptr<Session>& session,
                              std::function<std::optional<FromDaemon>()> next) {
    Session::send_parts(session, [impl = self, next = std::move(next)]() -> std::string {
        const auto alive = impl.lock();
        const std::optional<FromDaemon> message = alive ? next() : std::nullopt;
        if (!message) {
            return "";
        }
        ++alive->traffic.messages_out;
        return protocol::make_frame(protocol::encode(*message));
    });
}

void Daemon::Impl::refuse(const std::shared_ptr<Session>& session, Errc code,
                          const std::string& reason) {
    log_refusal("refusal", *session,
                (session->job.empty() ? "" : "job " + session->job + ": ") + "refused " +
                    session->peer + ": " + reason);
    send(session, Refused{code, reason});
    session->close_when_flushed = true;
}

void Daemon::Impl::log_refusal(const std::string& kind, const Session& session,
                               const std::string& line) {
    count_refusal(kind);
    refusals.log(kind, session.address, line, clock.now());
}

void Daemon::Impl::count_refusal(const std::string& kind) {
    std::string label = kind;
    std::ranges::transform(label, label.begin(), [](unsigned char letter) {
        return letter == ' ' ? '_' : static_cast<char>(std::tolower(letter));
    });
    ++counters.refusals[label];
}

void Daemon::Impl::note_message(Session& session, Instant now) {
    if (session.heartbeat_timeout == Duration::zero()) {
        return;
    }
    if (const Instant before = std::exchange(session.heard, now); before != Instant{}) {
        counters.silences.add(std::chrono::duration<double>(now - before) /
                              std::chrono::duration<double>(session.heartbeat_timeout));
    }
}

DaemonCounters Daemon::Impl::counted() const {
    DaemonCounters all = counters;
    all.leads = jobs->standing() == JobTable::Standing::leads;
    all.strangers_connected = strangers.size();
    all.nodes_connected = static_cast<std::uint64_t>(
        std::ranges::count_if(sessions, [](const auto& session) { return !session->job.empty(); }));
    all.others_connected = sessions.size() - all.nodes_connected - strangers.size();
    all.http_connected = door->connections_count();
    all.store_connected = store ? store->clients_count() : 0;
    all.store_requests = store ? store->requests_count() : 0;
    all.messages_in = traffic.messages_in;
    all.messages_out = traffic.messages_out;
    all.bytes_in = traffic.bytes_in;
    all.bytes_out = traffic.bytes_out;
    return all;
}

void Daemon::Impl::end(const std::shared_ptr<Session>& session) {
    session->close();
    charge(*session);
    sessions.erase(session);
    strangers.erase(session->stranger);
    if (jobs) {
        jobs->end(session);
    }
    check_flushed();
}

// Once a second: closes silent connections and forgets jobs that are not needed.
void Daemon::Impl::sweep() {
    const Duration interval = std::min(kSweepInterval, limits.hello_limit);
    sweep_timer.expires_after(interval);
    const Instant due = after(clock.now(), interval);
    sweep_timer.async_wait([impl = self.lock(), due](ErrorCode error) {
        if (error || impl->closed) {
            return;
        }
        const Instant now = impl->clock.now();
        impl->counters.delays.add(std::max(now - due, Duration::zero()));
        for (const auto& session : impl->sessions) {
            if (now >= session->expires) {
                impl->expire(*session);
            }
        }
        impl->refusals.sweep(now);
        impl->door->sweep();
        if (impl->store) {
            impl->store->sweep();
        }
        impl->jobs->sweep();
        impl->sweep();
    });
}

// PyTorch 1.13 opens a second connection for each store. It sends nothing on it, but fails when it
// is closed.
void Daemon::Impl::expire(Session& session) {
    if (session.protocol_told || !session.first_bytes.empty() || session.stream.ssl() ||
        !older_hosts.contains(session.address)) {
        session.close();
        return;
    }
    session.goes_to_store = true;
    ErrorCode ignored;
    session.stream.socket().cancel(ignored);
}

void Daemon::Impl::check_flushed() {
    if (!on_flushed) {
        return;
    }
    const bool flushed = std::all_of(sessions.begin(), sessions.end(),
                                     [](const auto& session) { return session->is_flushed(); });
    if (flushed) {
        flush_timer.cancel();
        asio::post(io, std::exchange(on_flushed, nullptr));
    }
}

void Daemon::Impl::flush(Duration limit, std::function<void()> done) {
    on_flushed = std::move(done);
    flush_timer.expires_after(limit);
    flush_timer.async_wait([impl = self.lock()](ErrorCode error) {
        if (!error && impl->on_flushed) {
            std::exchange(impl->on_flushed, nullptr)();
        }
    });
    check_flushed();
}

}  // namespace regroup::rendezvous
