// SPDX-License-Identifier: Apache-2.0
#include "agent/link/link_server.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <linux/futex.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/security/key.h"
#include "rendezvous/worker_link/packet.h"

namespace regroup::agent {
namespace {

using worker_link::FromWorker;
using worker_link::send_packet;
using worker_link::ToWorker;
using worker_link::WhenFull;

constexpr std::size_t kStrangersMax = 64;  ///< Connections without a Hello.
constexpr std::size_t kUnsentMax = 16;     ///< Queued messages for a worker that has not attached.
constexpr int kPacketsPerTurn = 64;        ///< For one connection, before the others.
constexpr int kBacklog = 1024;             ///< All workers of a node connect at once.

/// Resets a word that an earlier program of the same process, before exec, has left marked.
void forget_owner(std::atomic<std::uint32_t>& word) {
    std::uint32_t value = word.load();
    while ((value & FUTEX_OWNER_DIED) != 0 && !word.compare_exchange_weak(value, 0)) {
    }
}

}  // namespace

LinkServer::LinkServer(boost::asio::io_context& io, Handlers handlers, std::string address)
    : io_(io), handlers_(std::move(handlers)), address_(std::move(address)) {}

LinkServer::~LinkServer() = default;

Result<std::unique_ptr<LinkServer>> LinkServer::open(boost::asio::io_context& io,
                                                     Handlers handlers) {
    std::unique_ptr<LinkServer> server(
        new LinkServer(io, std::move(handlers), "@regroup-" + security::random_text()));
    UniqueFd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
    if (!socket) {
        return system_failure("a local socket for the workers", errno);
    }
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    // An abstract name begins with a zero byte in place of the @, and its length marks its end.
    std::copy(server->address_.begin() + 1, server->address_.end(), name.sun_path + 1);
    const auto bytes =
        static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + server->address_.size());
    if (::bind(socket.get(), reinterpret_cast<const sockaddr*>(&name), bytes) != 0 ||
        ::listen(socket.get(), kBacklog) != 0) {
        return system_failure("a local socket for the workers", errno);
    }
    auto listener =
        ReadableWatch::open(io, std::move(socket), [held = server.get()] { held->accept_all(); });
    if (!listener) {
        return listener.error();
    }
    server->listener_.emplace(*std::move(listener));
    server->listener_->arm();
    return server;
}

std::string LinkServer::expect(std::uint64_t key, std::shared_ptr<SharedPage> page,
                               worker_link::Welcome welcome) {
    ENSURE(key != 0);
    Slot& slot = slots_[key];
    slot.id = security::random_text();
    slot.page = std::move(page);
    slot.welcome = std::move(welcome);
    return slot.id;
}

void LinkServer::forget(std::uint64_t key) {
    if (const auto slot = slots_.find(key); slot != slots_.end()) {
        if (slot->second.connection) {
            close(*slot->second.connection);
        }
        slots_.erase(key);
    }
}

bool LinkServer::is_attached(std::uint64_t key) const {
    const auto slot = slots_.find(key);
    return slot != slots_.end() && slot->second.connection.has_value();
}

void LinkServer::send(std::uint64_t key, const ToWorker& message, int descriptor) {
    const auto found = slots_.find(key);
    if (found == slots_.end()) {
        return;
    }
    Slot& slot = found->second;
    std::string packet = worker_link::encode(message);
    if (!slot.connection) {
        if (slot.unsent.size() == kUnsentMax) {
            slot.unsent.pop_front();
        }
        slot.unsent.push_back(std::move(packet));
    } else if (!send_packet((*slot.connection)->socket->fd(), packet, WhenFull::fail, descriptor)) {
        if (errno != EPIPE && errno != ECONNRESET) {
            drop(*slot.connection, std::string("cannot be told anything: ") + std::strerror(errno));
        }  // Else it is ending; its last messages are still to be read.
    }
}

// ---- Connections.

void LinkServer::accept_all() {
    for (int i = 0; i < kPacketsPerTurn; ++i) {
        UniqueFd socket(::accept4(listener_->fd(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (!socket) {
            break;
        }
        admit(std::move(socket));
    }
    listener_->arm();
}

void LinkServer::admit(UniqueFd socket) {
    ucred peer{};
    socklen_t bytes = sizeof peer;
    if (::getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &bytes) != 0 ||
        peer.uid != ::geteuid()) {
        handlers_.on_trouble("pid " + std::to_string(peer.pid) + " of user " +
                             std::to_string(peer.uid) +
                             " has asked for a worker's link and was turned away");
        return;
    }
    const auto strangers = std::count_if(connections_.begin(), connections_.end(),
                                         [](const Connection& c) { return c.key == 0; });
    if (static_cast<std::size_t>(strangers) >= kStrangersMax) {
        close(std::find_if(connections_.begin(), connections_.end(),
                           [](const Connection& c) { return c.key == 0; }));
    }
    const ConnectionAt connection = connections_.emplace(connections_.end());
    connection->pid = peer.pid;
    auto watch =
        ReadableWatch::open(io_, std::move(socket), [this, connection] { read(connection); });
    if (!watch) {
        handlers_.on_trouble(watch.error().detail);
        connections_.erase(connection);
        return;
    }
    connection->socket.emplace(*std::move(watch));
    connection->socket->arm();
}

void LinkServer::read(ConnectionAt connection) {
    if (read_pending(connection)) {
        connection->socket->arm();
    }
}

void LinkServer::hear_out(std::uint64_t key) {
    if (const auto slot = slots_.find(key); slot != slots_.end() && slot->second.connection) {
        static_cast<void>(read_pending(*slot->second.connection));
    }
}

bool LinkServer::read_pending(ConnectionAt connection) {
    std::array<char, worker_link::kMessageLimit> buffer;  // NOLINT(*-member-init)
    for (int i = 0; i < kPacketsPerTurn; ++i) {
        const ssize_t count = ::recv(connection->socket->fd(), buffer.data(), buffer.size(),
                                     MSG_DONTWAIT | MSG_TRUNC);
        if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            break;
        }
        if (count < 0 && errno == ECONNRESET) {
            continue;  // The worker ended with unread messages. Its earlier messages are still
                       // there.
        }
        if (count <= 0) {
            close(connection);
            return false;
        }
        const auto length = static_cast<std::size_t>(count);
        if (length > buffer.size()) {
            drop(connection, "sent a message of " + std::to_string(length) + " bytes; at most " +
                                 std::to_string(buffer.size()) + " are allowed");
            return false;
        }
        if (!take(connection, std::string_view(buffer.data(), length))) {
            return false;
        }
    }
    return true;
}

bool LinkServer::take(ConnectionAt connection, std::string_view packet) {
    const Result<FromWorker> message = worker_link::decode_from_worker(packet);
    if (!message) {
        drop(connection, "sent a " + message.error().detail);
        return false;
    }
    if (const auto* hello = std::get_if<worker_link::Hello>(&*message)) {
        return greet(connection, *hello);
    }
    if (connection->key == 0) {
        drop(connection, "did not say who it is");
        return false;
    }
    const std::uint64_t key = connection->key;
    handlers_.on_message(key, *message);
    // The handler may have forgotten the worker, and so closed the connection.
    const auto slot = slots_.find(key);
    return slot != slots_.end() && slot->second.connection == connection;
}

bool LinkServer::greet(ConnectionAt connection, const worker_link::Hello& hello) {
    const auto found = std::find_if(slots_.begin(), slots_.end(), [&](const auto& slot) {
        return slot.second.id == hello.worker_id;
    });
    if (found == slots_.end() || (connection->key != 0 && connection->key != found->first)) {
        drop(connection, "is no worker of ours");
        return false;
    }
    if (hello.version < worker_link::kOldestLinkVersion ||
        hello.version > worker_link::kLinkVersion) {
        turn_away(connection, hello.version);
        return false;
    }
    const std::uint64_t key = found->first;
    Slot& slot = found->second;
    const bool is_new = slot.connection != connection;
    if (is_new) {
        if (slot.connection && (*slot.connection)->pid != connection->pid) {
            // A child of the worker has inherited its environment.
            drop(connection,
                 "says that it is the worker with pid " + std::to_string((*slot.connection)->pid));
            return false;
        }
        if (slot.connection) {
            close(*slot.connection);  // The process has executed another program.
        }
        if (!welcome(slot, connection)) {
            return false;
        }
        slot.connection = connection;
        connection->key = key;
        for (const std::string& packet : std::exchange(slot.unsent, {})) {
            if (!send_packet(connection->socket->fd(), packet, WhenFull::fail)) {
                drop(connection, "reads nothing");
                return false;
            }
        }
    }
    handlers_.on_hello(key, connection->pid, hello, is_new);
    const auto now = slots_.find(key);
    return now != slots_.end() && now->second.connection == connection;
}

// One message is enough: all workers mostly run the same program.
void LinkServer::turn_away(ConnectionAt connection, std::uint32_t version) {
    if (std::exchange(has_turned_away_, true)) {
        close(connection);
        return;
    }
    const bool is_newer = version > worker_link::kLinkVersion;
    drop(connection, std::string("was built with ") + (is_newer ? "a newer" : "an older") +
                         " SDK than this regroup serves (its link has version " +
                         std::to_string(version) + ", not " +
                         std::to_string(worker_link::kLinkVersion) + "): " +
                         (is_newer ? "start it with a regroup that is at least as new"
                                   : "build the program again with the SDK of this regroup") +
                         "; until then it is treated as one without the SDK");
}

bool LinkServer::welcome(Slot& slot, ConnectionAt connection) {
    forget_owner((*slot.page)->alive);
    (*slot.page)->exiting.store(0);
    (*slot.page)->finished.store(0);
    if (!send_packet(connection->socket->fd(), worker_link::encode(ToWorker(slot.welcome)),
                     WhenFull::fail, slot.page->fd())) {
        drop(connection, std::string("cannot be welcomed: ") + std::strerror(errno));
        return false;
    }
    return true;
}

void LinkServer::drop(ConnectionAt connection, const std::string& why) {
    const std::string who = "pid " + std::to_string(connection->pid);
    close(connection);
    handlers_.on_trouble("link of a worker closed: " + who + " " + why);
}

void LinkServer::close(ConnectionAt connection) {
    if (const auto slot = slots_.find(connection->key); slot != slots_.end()) {
        slot->second.connection.reset();
    }
    connections_.erase(connection);
}

}  // namespace regroup::agent
