// SPDX-License-Identifier: Apache-2.0
//
// A real daemon on loopback, and peers with plain sockets, in one thread: each wait runs the
// daemon.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/server/daemon.h"

namespace regroup::testing {

/// The event loop of everything in the test.
class Loop {
   public:
    boost::asio::io_context& io() { return io_; }

    /// Runs until `condition` holds; false if it does not within `limit`.
    bool until(const std::function<bool()>& condition, Duration limit = std::chrono::seconds(20));
    /// Runs for as long as something that must not happen could happen.
    void run_for(Duration time);

   private:
    boost::asio::io_context io_{1};
};

/// A daemon on a free port of 127.0.0.1, with a log to look into.
class DaemonHost {
   public:
    using Change = std::function<void(rendezvous::DaemonSetup& setup)>;

    explicit DaemonHost(
        Loop& loop, const rendezvous::DaemonLimits& limits = {}, std::uint16_t port = 0,
        const Change& change = [](rendezvous::DaemonSetup&) {});

    rendezvous::Daemon& daemon() { return *daemon_; }
    void destroy() { daemon_.reset(); }
    [[nodiscard]] std::uint16_t port() const { return port_; }
    [[nodiscard]] bool has_logged(const std::string& text) const { return count_logged(text) > 0; }
    /// The lines with `text`.
    [[nodiscard]] std::size_t count_logged(const std::string& text) const;

   private:
    SteadyClock clock_;
    std::vector<std::string> log_;
    std::unique_ptr<rendezvous::Daemon> daemon_;
    std::uint16_t port_ = 0;
};

/// One end of a connection on which the test sends bytes or messages.
class Peer {
   public:
    /// Connects to the daemon. `receive_buffer` 0 leaves the kernel's default.
    Peer(Loop& loop, std::uint16_t port, int receive_buffer = 0);
    /// Takes over a connected socket.
    static Peer adopt(Loop& loop, int fd);
    ~Peer();
    Peer(Peer&& other) noexcept;
    Peer(const Peer&) = delete;
    Peer& operator=(const Peer&) = delete;
    Peer& operator=(Peer&&) = delete;

    [[nodiscard]] bool connected() const { return fd_ >= 0; }
    /// False if the connection broke before all was sent.
    bool send(std::string_view bytes);
    bool say(const rendezvous::FromAgent& message);
    void hang_up();

    /// The payload of the next frame; nullopt at the end of the stream or after 20 s.
    std::optional<std::string> next_payload();
    /// The same, as a message of the daemon.
    std::optional<rendezvous::FromDaemon> next();
    /// The next message if it is of that type; the test fails otherwise.
    template <class Message>
    std::optional<Message> expect();
    /// Of a connection without messages: all that has come, once it contains `text`, or at the end
    /// of the stream or after 20 s.
    std::string await(const std::string& text);
    /// The same at the end of the stream.
    std::string rest();
    /// True once the daemon has closed the connection; messages before that are skipped.
    bool is_closed_by_peer(Duration limit = std::chrono::seconds(20));

   private:
    Peer(Loop& loop, int fd, std::nullptr_t) : loop_(&loop), fd_(fd) {}
    bool receive();  // False once nothing more can come.

    Loop* loop_;
    int fd_ = -1;
    protocol::FrameReader reader_;
    std::string text_;
    bool ended_ = false;
};

/// Listens on a free port of 127.0.0.1, in the daemon's place.
class Listener {
   public:
    explicit Listener(Loop& loop);
    ~Listener();
    Listener(const Listener&) = delete;
    Listener& operator=(const Listener&) = delete;

    [[nodiscard]] std::uint16_t port() const { return port_; }
    Peer accept();

   private:
    Loop& loop_;
    int fd_;
    std::uint16_t port_ = 0;
};

/// The whole answer to a GET, with its head.
std::string get_by_http(Loop& loop, std::uint16_t port, const std::string& target);
/// Its body.
std::string body_by_http(Loop& loop, std::uint16_t port, const std::string& target);

/// Lets the test fail at a message that is not the expected one.
void report_unexpected(const std::string& message);
/// The type's name and its reason or detail, for failure messages.
std::string shown(const std::optional<rendezvous::FromDaemon>& message);

template <class Message>
std::optional<Message> Peer::expect() {
    std::optional<rendezvous::FromDaemon> message = next();
    // Each heartbeat of a waiting node is answered with Waiting.
    while (!std::is_same_v<Message, rendezvous::Waiting> && message &&
           std::holds_alternative<rendezvous::Waiting>(*message)) {
        message = next();
    }
    if (message && std::holds_alternative<Message>(*message)) {
        return std::get<Message>(std::move(*message));
    }
    report_unexpected(shown(message));
    return std::nullopt;
}

/// A join of node `name` for a job of `nodes` nodes with two workers each. The limits are long: a
/// silent or disconnected node is not lost while a test runs.
rendezvous::Join join_of(const std::string& job, const std::string& name, std::uint32_t nodes);
rendezvous::Report running(rendezvous::RoundId round);

}  // namespace regroup::testing

namespace regroup {

using testing::DaemonHost;
using testing::join_of;
using testing::Loop;
using testing::Peer;
using testing::running;

}  // namespace regroup
