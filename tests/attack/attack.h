// SPDX-License-Identifier: Apache-2.0
//
// A real job that trains, and attackers in processes of their own: on other hosts, as other users,
// with and without a token. An attack may cost the job time and memory within bounds. It must not
// change the job's round, stop its steps, or keep the daemon from answering others.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <sys/types.h>
#include <vector>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "rendezvous/core/messages.h"
#include "rendezvous/protocol/framing.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/security/tls.h"
#include "rendezvous/security/token.h"
#include "tests/chaos/network.h"
#include "tests/e2e/end_to_end.h"
#include "tests/support/program.h"
#include "tests/support/sanitizer.h"

namespace regroup::attack {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::Words;
using testing::operator+;

/// A user of no process of the job ("nobody").
inline constexpr uid_t kOtherUser = 65534;
/// On the victim's network: its two nodes, of which the first has the daemon, and the stranger.
inline constexpr std::size_t kFirstHost = 0;
inline constexpr std::size_t kSecondHost = 1;
inline constexpr std::size_t kStrangersHost = 2;

using testing::has_sanitizer;
/// How long a call waits for an answer.
[[nodiscard]] milliseconds answer_limit();

/// A port where somebody listens.
struct Target {
    std::string host;
    std::uint16_t port = 0;

    [[nodiscard]] std::string text() const { return host + ":" + std::to_string(port); }
};

/// The connections of an attacker. All stay open until the attack ends. One thread.
class Siege {
   public:
    /// `end_fd` becomes readable when the attack is to end; -1: the caller decides.
    explicit Siege(int end_fd = -1, std::function<void()> on_full_force = nullptr);
    ~Siege();
    Siege(const Siege&) = delete;
    Siege& operator=(const Siege&) = delete;

    /// True until the victim has shown that it goes on. Call it once the attack is in full force.
    [[nodiscard]] bool goes_on();
    /// Waits until it does not.
    void hold();

    /// A plain connection that has sent `bytes`; -1 if it cannot be made within two seconds.
    int dial(const Target& target, std::string_view bytes = "");
    /// Sends what the peer takes; false once the connection has ended.
    static bool send(int fd, std::string_view bytes);
    /// The bytes that come within `limit`, until the peer closes or `count` bytes are there.
    static std::string receive(int fd, std::size_t count, milliseconds limit = answer_limit());

    [[nodiscard]] boost::asio::io_context& io() { return io_; }

   private:
    int end_fd_;
    std::function<void()> on_full_force_;
    std::vector<int> dialled_;
    boost::asio::io_context io_{1};
};

/// One connection that speaks the control protocol, in the clear or by TLS. Each call has a limit
/// of its own or answer_limit().
class Caller {
   public:
    Caller(Siege& siege, const Target& target);
    /// Takes over a connected socket.
    Caller(Siege& siege, int fd);
    ~Caller();
    Caller(const Caller&) = delete;
    Caller& operator=(const Caller&) = delete;

    [[nodiscard]] bool is_connected() const { return stream_.is_open(); }
    /// Proves that it has `token`; false if the peer does not accept that.
    bool secure(const security::Token& token);
    /// The same with any end of TLS.
    bool secure(const security::Tls& tls, milliseconds limit = answer_limit());

    /// False if the connection has ended or the peer does not read.
    bool send(std::string_view bytes);
    bool say(const rendezvous::FromAgent& message);
    /// The body of the answer to a GET, which is the last thing on the connection.
    std::string get(const std::string& target);
    /// The payload of the next frame; nothing at the end of the connection or after `limit`.
    std::optional<std::string> next_payload(milliseconds limit = answer_limit());
    std::optional<rendezvous::FromDaemon> next(milliseconds limit = answer_limit());
    /// Skips other messages.
    template <class Message>
    std::optional<Message> await(milliseconds limit = answer_limit()) {
        while (auto message = next(limit)) {
            if (auto* found = std::get_if<Message>(&*message)) {
                return std::move(*found);
            }
        }
        return std::nullopt;
    }
    /// True once the peer has closed; messages before that are skipped.
    bool is_closed_by_peer();

   private:
    template <class T>
    std::optional<T> run(boost::asio::awaitable<T> work, milliseconds limit);
    std::string read(milliseconds limit);
    bool receive(milliseconds limit);

    boost::asio::io_context& io_;
    security::Stream stream_;
    protocol::FrameReader reader_;
};

/// A connection with the token; it has no `is_connected` if the daemon does not let it in.
[[nodiscard]] std::unique_ptr<Caller> call(Siege& siege, const Target& target,
                                           const security::Token& token);

/// The most memory that a process has had, in bytes.
[[nodiscard]] std::size_t peak_of(pid_t pid);

/// A job of two elastic nodes with one worker each, and its daemon.
class Victim {
   public:
    struct Options {
        /// Where the nodes are hosts; nullptr: both are on the loopback interface.
        const chaos::Network* network = nullptr;
        Words serve_flags{};
        Words run_flags{};
    };
    explicit Victim(Options options);

    struct State {
        std::string phase{};
        std::uint64_t round = 0;
        std::uint64_t step = 0;
        std::size_t world_size = 0;
        std::string refused{};  ///< The daemon's refusal in place of an answer.
    };
    /// The output of `regroup status`, from the second node's host; the test fails without an
    /// answer in time.
    [[nodiscard]] State state() const;
    [[nodiscard]] nlohmann::json status(const Words& flags = {}) const;
    /// The number of the last step that rank 0 began.
    [[nodiscard]] std::uint64_t step() const;
    /// Waits for `count` more steps; false if they do not come.
    [[nodiscard]] bool takes_steps(std::uint64_t count) const;
    /// Waits until two nodes train in a round of at least that number; false if they do not.
    [[nodiscard]] bool trains_in_round(std::uint64_t round) const;

    [[nodiscard]] const Target& daemon() const { return daemon_; }
    [[nodiscard]] pid_t daemon_pid() const { return serve_->pid(); }
    [[nodiscard]] std::string daemon_log() const { return serve_->output(); }
    /// The most memory that the daemon has had, in bytes.
    [[nodiscard]] std::size_t daemon_peak() const { return peak_of(daemon_pid()); }
    [[nodiscard]] const std::string& folder() const { return folder_.path(); }
    [[nodiscard]] std::string token_file() const { return folder() + "/token"; }
    [[nodiscard]] std::string state_folder() const { return folder() + "/state"; }
    [[nodiscard]] const security::Token& token() const { return *token_; }
    [[nodiscard]] testing::Program& node(std::size_t index) { return *nodes_.at(index); }
    /// Kills the worker of that rank; the test fails if it is not known.
    void kill_worker(std::uint64_t round, std::uint32_t rank) const;

    /// Starts a program on a host of the victim's network.
    [[nodiscard]] std::unique_ptr<testing::Program> start(std::size_t host,
                                                          const Words& command) const;
    /// `regroup` with the flags that find the daemon, from the second host.
    [[nodiscard]] std::unique_ptr<testing::Program> operate(const Words& words) const;

    /// Runs `attack` in a process of its own, and checks that the victim does not care: it is in
    /// the same round, takes more steps while the attack is in full force, and the daemon answers.
    /// The attack returns what it could do and should not have been able to; "": nothing.
    void endure(std::optional<std::size_t> host, uid_t user,
                const std::function<std::string(Siege&)>& attack) const;

    /// Kills the daemon and starts it again with the same state.
    void restart_daemon();
    /// Lets the workers finish; both nodes must succeed. The daemon must never have had more
    /// memory than this.
    void finish(std::size_t daemon_bytes_max);

   private:
    void serve();

    Options options_;
    testing::TemporaryDirectory folder_;
    std::optional<security::Token> token_;
    Target daemon_;
    std::unique_ptr<testing::Program> serve_;
    std::vector<std::unique_ptr<testing::Program>> nodes_;
};

/// An attacker in a process of its own. The process ends with this object.
class Attacker {
   public:
    Attacker(const chaos::Network* network, std::optional<std::size_t> host, uid_t user,
             const std::function<std::string(Siege&)>& attack);
    ~Attacker();
    Attacker(const Attacker&) = delete;
    Attacker& operator=(const Attacker&) = delete;

    /// Waits until the attack is in full force or over; false if it does not begin.
    [[nodiscard]] bool is_in_force();
    /// Ends the attack. Returns its complaint.
    std::string end();

   private:
    pid_t pid_ = -1;
    int said_fd_ = -1;
    int end_fd_ = -1;
    std::string said_;
};

/// Where processes of the network namespace of `pid` listen; with `only_own`, where that process
/// does. `host` replaces the address "any".
[[nodiscard]] std::vector<Target> listeners_of(pid_t pid, const std::string& host, bool only_own);

/// A join of a node that looks like those of the victim.
[[nodiscard]] rendezvous::Join join_of(const std::string& job, const std::string& name,
                                       std::uint32_t nodes_min, std::uint32_t nodes_max);

[[nodiscard]] rendezvous::Operate stop_of(const std::string& job);
[[nodiscard]] rendezvous::Operate drain_of(const std::string& job, const std::string& node);
[[nodiscard]] rendezvous::Operate logs_of(const std::string& job);

}  // namespace regroup::attack
