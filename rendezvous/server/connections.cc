// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/connections.h"

#include <algorithm>
#include <utility>

#include <boost/asio/post.hpp>

namespace regroup::rendezvous {
namespace {

// A host may have as many, however few descriptors there are.
constexpr std::size_t kStrangersOfAnyHost = 16;
// While others wait, a stranger may be silent for this long. Clients give up later.
constexpr Duration kIdleLimit = std::chrono::seconds(3);
// The same while its own host has many.
constexpr Duration kIdleLimitOfMany = std::chrono::milliseconds(250);

}  // namespace

Connections::Connections(boost::asio::io_context& io, const Clock& clock,
                         const DaemonLimits& limits, PeerLog& peers_log, DaemonCounters& counters,
                         Daemon::Log log)
    : io_(io),
      clock_(clock),
      limits_(limits),
      peers_log_(peers_log),
      counters_(counters),
      log_(std::move(log)),
      flush_timer_(io) {}

std::shared_ptr<Connection> Connections::open(const std::shared_ptr<Connections>& self,
                                              boost::asio::ip::tcp::socket socket) {
    const auto session =
        Session::create(std::move(socket), self, limits_.outbox_frames_max, limits_.hello_limit);
    if (session->peer.address.empty()) {
        return nullptr;
    }
    ++counters_.connections_accepted;
    const auto own = strangers_of_.find(session->peer.address);
    if (own != strangers_of_.end() &&
        own->second.size() >= std::max(limits_.strangers_max / 4, kStrangersOfAnyHost) &&
        !close_idle(own->second, kIdleLimitOfMany)) {
        peers_log_.say_refused("eviction", *session,
                               "closed the connection of " + session->peer.text +
                                   ": its host has many that have said nothing yet");
        return nullptr;
    }
    auto connection = std::make_shared<Connection>();
    connection->session = session;
    connection->accepted = clock_.now();
    session->hear(connection->accepted);
    connection->stranger = ++last_stranger_;
    strangers_.emplace(connection->stranger, connection);
    strangers_of_[session->peer.address].emplace(connection->stranger, connection);
    all_.emplace(session.get(), connection);
    return connection;
}

bool Connections::make_room() {
    return strangers_.size() < limits_.strangers_max || close_idle(strangers_, kIdleLimit);
}

bool Connections::make_room_at_once() {
    return close_idle(strangers_, Duration::zero());
}

bool Connections::close_idle(const Strangers& strangers, Duration limit) {
    const Instant since = clock_.now() - limit;
    for (const auto& [number, connection] : strangers) {
        if (connection->accepted > since) {
            break;
        }
        Session& session = *connection->session;
        if (session.stream.has_something_to_read()) {
            continue;  // It waits for this daemon.
        }
        peers_log_.say_refused("eviction", session,
                               "closed the connection of " + session.peer.text +
                                   ", which has said nothing yet, since others wait");
        const std::shared_ptr<Connection> idle = connection;
        promote(*idle);
        all_.erase(&session);
        session.close();
        charge(*idle);
        return true;
    }
    return false;
}

void Connections::promote(Connection& connection) {
    if (connection.stranger == 0) {
        return;
    }
    const auto own = strangers_of_.find(connection.session->peer.address);
    own->second.erase(connection.stranger);
    if (own->second.empty()) {
        strangers_of_.erase(own);
    }
    strangers_.erase(std::exchange(connection.stranger, 0));
}

void Connections::end(const std::shared_ptr<Connection>& connection) {
    connection->session->close();
    charge(*connection);
    promote(*connection);
    all_.erase(connection->session.get());
    check_flushed();
}

void Connections::close_all() {
    for (const auto& [session, connection] : all_) {
        connection->session->close();
    }
}

// By address, since all members may have one token: many small ones must not push out a node whose
// only message is large.
void Connections::charge(Connection& connection) {
    held_bytes_ += connection.held_bytes() - connection.charged_bytes;
    connection.charged_bytes = connection.held_bytes();
    while (held_bytes_ > limits_.sessions_bytes_max) {
        std::map<std::string, std::size_t> by_address;
        for (const auto& [session, one] : all_) {
            by_address[session->peer.address] += one->charged_bytes;
        }
        const auto holds_less = [&](const auto& a, const auto& b) {
            return std::pair(by_address.at(a.first->peer.address), a.second->charged_bytes) <
                   std::pair(by_address.at(b.first->peer.address), b.second->charged_bytes);
        };
        Connection& most = *std::ranges::max_element(all_, holds_less)->second;
        peers_log_.say_refused("memory", *most.session,
                               "disconnected " + most.session->peer.text +
                                   ": all connections together hold " +
                                   std::to_string(held_bytes_) +
                                   " bytes of messages that are not complete or not read, and its "
                                   "host most of them; the limit is " +
                                   std::to_string(limits_.sessions_bytes_max));
        most.session->close();
        held_bytes_ -= std::exchange(most.charged_bytes, 0);
    }
}

void Connections::charge(Session& session) {
    if (const auto found = all_.find(&session); found != all_.end()) {
        charge(*found->second);
    }
}

void Connections::hear(Connection& connection) {
    Session& session = *connection.session;
    const Instant now = clock_.now();
    if (session.membership) {
        const Instant before = std::exchange(connection.heard, now);
        if (before != Instant{}) {
            counters_.silences.add(to_seconds(now - before) /
                                   to_seconds(session.membership->heartbeat_timeout));
        }
    }
    if (!session.is_finishing()) {
        session.hear(now);
    }
}

std::vector<std::shared_ptr<Connection>> Connections::overdue() const {
    std::vector<std::shared_ptr<Connection>> found;
    for (const auto& [session, connection] : all_) {
        if (session->is_overdue(clock_.now())) {
            found.push_back(connection);
        }
    }
    return found;
}

std::size_t Connections::nodes_count() const {
    return static_cast<std::size_t>(std::ranges::count_if(
        all_, [](const auto& entry) { return entry.first->membership.has_value(); }));
}

void Connections::flush(Duration limit, std::function<void()> done) {
    on_flushed_ = std::move(done);
    flush_timer_.expires_after(limit);
    flush_timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (!error && !alive.expired() && on_flushed_) {
                std::exchange(on_flushed_, nullptr)();
            }
        });
    check_flushed();
}

void Connections::cancel_flush() {
    on_flushed_ = nullptr;
    flush_timer_.cancel();
}

void Connections::check_flushed() {
    if (on_flushed_ &&
        std::ranges::all_of(all_, [](const auto& entry) { return entry.first->is_flushed(); })) {
        flush_timer_.cancel();
        boost::asio::post(io_, std::exchange(on_flushed_, nullptr));
    }
}

void Connections::queued(Session& session) {
    ++counters_.messages_out;
    charge(session);
}

void Connections::written(Session& session, std::size_t bytes) {
    counters_.bytes_out += bytes;
    charge(session);
    check_flushed();
}

void Connections::overflowed(Session& session) {
    log_("disconnected " + session.peer.text + ": it does not read what it is sent");
    charge(session);
}

}  // namespace regroup::rendezvous
