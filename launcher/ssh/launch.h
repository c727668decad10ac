// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/process/linux_launcher.h"
#include "agent/process/output_relay.h"
#include "launcher/cluster/host_file.h"
#include "launcher/command.h"
#include "launcher/ssh/decisions.h"
#include "launcher/ssh/host_session.h"
#include "launcher/ssh/options.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/security/token.h"

namespace regroup::launcher::ssh {

/// The parts of a job over ssh.
struct LaunchPlan {
    LaunchOptions options;
    std::vector<HostEntry> hosts;
    std::vector<std::string> ssh;  ///< The client and its flags; the first word is a path.
    std::string remote_command;
    std::string folder;
    std::vector<std::string> environment;
    std::string job;
    std::optional<security::Token> token;  ///< A full one.
};

/// One host of the list.
struct Host {
    enum class State : std::uint8_t { waiting, connecting, ready, ordered, ended };

    Host(boost::asio::io_context& io, std::size_t index_in, const HostEntry& entry)
        : index(index_in), name(entry.host), deadline(io) {}

    std::size_t index;
    std::string name;
    State state = State::waiting;
    std::string address;
    std::string complaint;    ///< Its last line on stderr while it was connecting.
    std::string kill_reason;  ///< Why we have ended its connection; may be empty.
    HostEnding ending;
    boost::asio::steady_timer deadline;
    std::unique_ptr<HostSession> session;  ///< Null until it connects.
};

using Hosts = std::vector<std::unique_ptr<Host>>;

/// Tells which lines about the job are news: its hosts say most of them alike.
class JobLines {
   public:
    /// False if another host has said the line before. A host that says the same again has news.
    [[nodiscard]] bool is_news(std::size_t host, const JobLine& line);

   private:
    /// The last topics, and the hosts that have said each of them.
    std::deque<std::pair<std::string, std::set<std::size_t>>> topics_;
};

/// A job over ssh, from the first connection to the end of the last one.
///
/// The nodes start in two steps: when each host is ready or has failed, the head gets its order;
/// when it runs the daemon, the others get theirs, with its address.
class Launch {
   public:
    explicit Launch(LaunchPlan plan);

    /// Runs the job. To be called once.
    CommandEnd run();

   private:
    enum class Stage : std::uint8_t { connecting, starting, running, ended };

    void connect_more();
    void connect(Host& host);
    void handle_report(Host& host, const Report& report);
    void handle_lines(Host& host, bool from_stderr, std::string_view lines, std::size_t count);
    void handle_end(Host& host, agent::ExitStatus status);
    void leave_out(Host& host, const std::string& reason);
    void start_if_settled();
    void start_head();
    void start_others(std::uint16_t port);
    void order(Host& host, const std::string& endpoint, std::optional<bool> is_head);
    void handle_signal(int number);
    /// Asks all nodes to leave; after `grace` their connections are closed.
    void stop_nodes(int signal, Duration grace);
    void close_all(const std::string& reason);
    void close_all_after(Duration grace);
    void tell_report(const std::vector<std::string>& report);
    void end(CommandEnd ending);
    void end_if_all_ended();
    [[nodiscard]] std::size_t count(Host::State state) const;

    const LaunchPlan plan_;
    const SteadyClock clock_;
    boost::asio::io_context io_{1};
    agent::OutputRelay output_;
    agent::LinuxLauncher launcher_;
    Hosts hosts_;
    boost::asio::steady_timer deadline_;
    Stage stage_ = Stage::connecting;
    std::size_t next_ = 0;             ///< The next host to connect to.
    std::optional<std::size_t> head_;  ///< It runs the daemon.
    std::size_t nodes_ = 0;            ///< Nodes that were ready.
    int signals_ = 0;                  ///< How often the user has asked for the end.
    Instant signalled_at_ = Instant::min();
    bool stopping_ = false;
    bool stopped_by_user_ = false;
    /// The ending if the launcher itself has ended the job, and of the user if no node reports one.
    std::optional<CommandEnd> cause_;
    std::vector<std::vector<std::string>> reports_;  ///< Those printed, each once.
    JobLines job_lines_;
    CommandEnd ending_;
};

}  // namespace regroup::launcher::ssh
