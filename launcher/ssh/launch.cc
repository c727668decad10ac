// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/launch.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "agent/process/quit_signals.h"
#include "agent/process/warden.h"
#include "launcher/host.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/text.h"
#include "rendezvous/security/key.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher::ssh {
namespace {

constexpr std::size_t kConnectingMax = 64;
// Lines of the job that another host may still repeat.
constexpr std::size_t kJobTopicsMax = 64;
constexpr std::size_t kComplaintBytesMax = 500;
constexpr int kExitNoProgram = 127;  // By the shell there.
constexpr Duration kFlushLimit = std::chrono::seconds(1);
// As for the agents, a second signal within this time is an echo of the first one.
constexpr Duration kEchoLimit = std::chrono::seconds(1);
constexpr Duration kEchoLimitOfKeyboard = std::chrono::milliseconds(200);
// For the bytes that are under way when a node should have ended.
constexpr Duration kGraceOfNetwork = std::chrono::seconds(10);

// The last line that says anything.
std::string last_line(std::string_view lines) {
    const std::size_t end = lines.find_last_not_of(" \t\r\n");
    if (end == lines.npos) {
        return "";
    }
    const std::size_t begin = lines.rfind('\n', end) + 1;  // Without one, npos + 1 is 0.
    return std::string(lines.substr(begin, std::min(end + 1 - begin, kComplaintBytesMax)));
}

std::size_t nodes_min(const LaunchPlan& plan) {
    const bool elsewhere_too = plan.options.gives_endpoint && plan.options.gives_nodes;
    return elsewhere_too              ? 1
           : plan.options.gives_nodes ? plan.options.run.agent.core.policy.nodes_min
                                      : plan.hosts.size();
}

// All hosts, 64 at a time, and each in the worst case.
Duration start_limit(const LaunchPlan& plan) {
    const auto turns = static_cast<std::int64_t>(plan.hosts.size() / kConnectingMax + 1);
    return 2 * plan.options.connect_timeout * turns + kGraceOfNetwork;
}

// A node may take --shutdown-timeout to save, and as long again to end.
Duration grace_of_nodes(const LaunchPlan& plan) {
    return 2 * plan.options.run.agent.core.policy.shutdown_timeout + kGraceOfNetwork;
}

// True once a node has reported the verdict of the job.
bool is_over(const Hosts& hosts) {
    return std::ranges::any_of(
        hosts, [](const auto& host) { return host->ending && host->ending->by_verdict; });
}

void send_to(Host& host, const Order& order) {
    Result<std::string> frame = encode(order);
    if (!frame) {
        host.kill_reason = frame.error().detail;
        host.session->kill();
        return;
    }
    host.session->send(*std::move(frame));
}

}  // namespace

bool JobLines::is_news(std::size_t host, const JobLine& line) {
    const auto known =
        std::ranges::find_if(topics_, [&](const auto& topic) { return topic.first == line.topic; });
    if (known != topics_.end() && known->second.insert(host).second) {
        return false;
    }
    if (known != topics_.end()) {
        known->second = {host};
    } else {
        topics_.emplace_back(line.topic, std::set{host});
    }
    if (topics_.size() > kJobTopicsMax) {
        topics_.pop_front();
    }
    return true;
}

Launch::Launch(LaunchPlan plan)
    : plan_(std::move(plan)),
      output_(io_, clock_, {.files = true, .in_place = terminal_has_cursor()}),
      launcher_(io_),
      deadline_(io_) {
    for (const HostEntry& entry : plan_.hosts) {
        hosts_.push_back(std::make_unique<Host>(io_, hosts_.size(), entry));
    }
}

CommandEnd Launch::run() {
    agent::QuitSignals::Handlers handlers;
    handlers.on_signal = [this](int number) { handle_signal(number); };
    const auto signals =
        agent::QuitSignals::listen(io_, -1, agent::kAgentSignals, std::move(handlers));
    if (!signals) {
        output_.say(signals.error().detail);
        return {.exit_code = kExitJobFailed};
    }
    connect_more();
    io_.run();
    for (const auto& host : hosts_) {
        host->session.reset();  // Kills a client that still runs.
    }
    output_.flush(after(clock_.now(), kFlushLimit));
    return ending_;
}

std::size_t Launch::count(Host::State state) const {
    return static_cast<std::size_t>(
        std::ranges::count_if(hosts_, [&](const auto& host) { return host->state == state; }));
}

// ---- Connecting.

void Launch::connect_more() {
    while (stage_ == Stage::connecting && next_ < hosts_.size() &&
           count(Host::State::connecting) < kConnectingMax) {
        connect(*hosts_[next_++]);
    }
    start_if_settled();
}

void Launch::connect(Host& host) {
    const std::string word = security::random_text();
    HostSession::Handlers handlers;
    handlers.on_report = [this, &host](const Report& report) { handle_report(host, report); };
    handlers.on_lines = [this, &host](bool from_stderr, std::string_view lines, std::size_t count) {
        handle_lines(host, from_stderr, lines, count);
    };
    handlers.on_end = [this, &host](agent::ExitStatus status) { handle_end(host, status); };
    host.session = std::make_unique<HostSession>(io_, clock_, word, std::move(handlers));
    std::vector<std::string> command = plan_.ssh;
    const auto seconds =
        std::chrono::ceil<std::chrono::seconds>(plan_.options.connect_timeout).count();
    // Of two values for one option, ssh takes the first: those in --ssh come before these.
    command.insert(command.end(),
                   {"-T", "-o", "BatchMode=yes", "-o", "ConnectTimeout=" + std::to_string(seconds),
                    "-o", "ServerAliveInterval=10", "-o", "RemoteCommand=none", "--",
                    plan_.hosts[host.index].destination(), plan_.remote_command});
    host.state = Host::State::connecting;
    if (const Result<void> started = host.session->start(launcher_, command); !started) {
        leave_out(host, started.error().detail);
        return;
    }
    send_to(host, Setup{word, host.name, plan_.folder, plan_.environment, start_limit(plan_)});
    host.deadline.expires_after(2 * plan_.options.connect_timeout);
    host.deadline.async_wait([this, &host](const boost::system::error_code& error) {
        if (!error && host.state == Host::State::connecting) {
            host.kill_reason = "no answer within " +
                               format_duration(2 * plan_.options.connect_timeout) +
                               " (--connect-timeout)";
            host.session->kill();
        }
    });
}

void Launch::leave_out(Host& host, const std::string& reason) {
    host.state = Host::State::ended;
    output_.say("host " + host.name + " cannot take part: " + reason);
}

void Launch::handle_lines(Host& host, bool from_stderr, std::string_view lines, std::size_t count) {
    if (host.state == Host::State::ordered || host.state == Host::State::ended) {
        output_.pass_on(from_stderr, lines, count);
    } else if (from_stderr) {
        const std::string last = last_line(lines);
        host.complaint = last.empty() ? host.complaint : last;
    }
}

void Launch::handle_report(Host& host, const Report& report) {
    if (const auto* ready = std::get_if<Ready>(&report);
        ready != nullptr && host.state == Host::State::connecting) {
        host.state = Host::State::ready;
        host.address = ready->address;
        host.deadline.cancel();
        connect_more();
    } else if (const auto* refused = std::get_if<Refused>(&report)) {
        host.kill_reason = refused->reason;
    } else if (const auto* serving = std::get_if<Serving>(&report);
               serving != nullptr && stage_ == Stage::starting && host.index == head_) {
        start_others(serving->port);
    } else if (const auto* line = std::get_if<JobLine>(&report)) {
        if (job_lines_.is_news(host.index, *line)) {
            output_.say(line->text);
        }
    } else if (const auto* ended = std::get_if<Ended>(&report); ended != nullptr && !host.ending) {
        if (ended->by_verdict && !is_over(hosts_) && !stopping_) {
            // A node that had to leave saves its state, whatever becomes of the job.
            close_all_after(plan_.options.run.agent.core.policy.prepare_timeout +
                            grace_of_nodes(plan_));
        }
        host.ending = CommandEnd{.exit_code = ended->exit_code,
                                 .signal = ended->signal,
                                 .by_verdict = ended->by_verdict,
                                 .report = ended->report};
    }
}

void Launch::tell_report(const std::vector<std::string>& report) {
    if (!report.empty() && std::ranges::find(reports_, report) == reports_.end()) {
        reports_.push_back(report);
        output_.say_lines(report);
    }
}

// ---- Starting.

void Launch::start_if_settled() {
    if (stage_ != Stage::connecting || stopping_ || next_ < hosts_.size() ||
        count(Host::State::connecting) > 0) {
        const std::size_t total = hosts_.size();
        output_.show_progress(stage_ == Stage::connecting && total > 1
                                  ? std::to_string(count(Host::State::ready)) + " of " +
                                        std::to_string(total) + " hosts are ready"
                                  : "");
        return;
    }
    output_.show_progress("");
    nodes_ = count(Host::State::ready);
    if (nodes_ < nodes_min(plan_) || nodes_ == 0) {
        output_.say(std::to_string(nodes_) + " of " + std::to_string(hosts_.size()) +
                    " hosts can take part, and the job needs " + std::to_string(nodes_min(plan_)) +
                    (plan_.options.gives_nodes
                         ? " (--nnodes)"
                         : "; --nnodes=MIN:" + std::to_string(hosts_.size()) + " starts with MIN"));
        end({.exit_code = kExitSshFailed});
        return;
    }
    stage_ = Stage::starting;
    start_head();
}

void Launch::start_head() {
    if (plan_.options.gives_endpoint) {
        stage_ = Stage::running;
        for (const auto& host : hosts_) {
            order(*host, plan_.options.run.rendezvous.endpoint, std::nullopt);
        }
        return;
    }
    std::vector<ReadyHost> ready;
    std::vector<std::size_t> indices;
    for (const auto& host : hosts_) {
        if (host->state == Host::State::ready) {
            ready.push_back({host->name, host->address});
            indices.push_back(host->index);
        }
    }
    head_ = indices[choose_head(ready)];
    Host& head = *hosts_[*head_];
    order(head, host_and_port(endpoint_host({head.name, head.address}), 0), true);
    deadline_.expires_after(2 * plan_.options.connect_timeout);
    deadline_.async_wait([this](const boost::system::error_code& error) {
        if (!error && stage_ == Stage::starting) {
            close_all("host " + hosts_[*head_]->name + " does not start the daemon within " +
                      format_duration(2 * plan_.options.connect_timeout) + " (--connect-timeout)");
        }
    });
}

void Launch::start_others(std::uint16_t port) {
    stage_ = Stage::running;
    deadline_.cancel();
    const Host& head = *hosts_.at(head_.value());
    const std::string endpoint = host_and_port(endpoint_host({head.name, head.address}), port);
    output_.say("job " + plan_.job + " starts on " + std::to_string(nodes_) + " host(s); " +
                head.name + " runs the daemon at " + endpoint);
    for (const auto& host : hosts_) {
        order(*host, endpoint, false);
    }
}

void Launch::order(Host& host, const std::string& endpoint, std::optional<bool> is_head) {
    if (host.state != Host::State::ready) {
        return;
    }
    const LaunchOptions& options = plan_.options;
    Start start;
    start.index = static_cast<std::uint32_t>(host.index);
    start.is_head = is_head;
    start.arguments = options.run_flags;
    start.arguments.insert(
        start.arguments.end(),
        {"--rdzv-backend=regroup", "--rdzv-endpoint=" + endpoint, "--rdzv-id=" + plan_.job});
    if (!options.gives_endpoint || !options.gives_nodes) {
        // No host beyond these will come.
        const std::size_t most =
            options.gives_nodes
                ? std::min<std::size_t>(options.run.agent.core.policy.nodes_max, nodes_)
                : nodes_;
        start.arguments.push_back("--nnodes=" + std::to_string(std::min(nodes_min(plan_), most)) +
                                  ":" + std::to_string(most));
    }
    if (const auto slots = plan_.hosts[host.index].slots; slots && !options.gives_workers) {
        start.arguments.push_back("--nproc-per-node=" + std::to_string(*slots));
    }
    start.arguments.insert(start.arguments.end(), {"--", options.run.program.program});
    start.arguments.insert(start.arguments.end(), options.run.program.arguments.begin(),
                           options.run.program.arguments.end());
    if (plan_.token) {
        const bool may_serve = is_head.value_or(true);
        const security::Scope node{security::Role::node, plan_.job};
        start.token = may_serve ? plan_.token->text() : plan_.token->limited_to(node).text();
    }
    host.state = Host::State::ordered;
    host.complaint.clear();
    send_to(host, start);
}

// ---- Ending.

void Launch::handle_end(Host& host, agent::ExitStatus status) {
    host.deadline.cancel();
    const bool has_no_program = status.exit_code == kExitNoProgram;
    const std::string how =
        "ssh " + status.describe() + (has_no_program ? "; --regroup names the program there" : "");
    const std::string reason = !host.kill_reason.empty() ? host.kill_reason
                               : host.complaint.empty()  ? how
                                                         : host.complaint + " (" + how + ")";
    const bool was_ordered = host.state == Host::State::ordered;
    if (host.ending) {
        tell_report(std::exchange(host.ending->report, {}));  // Below the lines of its node.
    } else if (was_ordered) {
        output_.say("the connection to host " + host.name + " ended before its node: " + reason);
    } else if (!was_ordered && !stopping_) {
        leave_out(host, reason);
    }
    host.state = Host::State::ended;
    if (stage_ == Stage::connecting) {
        connect_more();
        return;
    }
    // The others would wait for a node that does not come, or does not come back.
    const bool is_usage =
        host.ending && !host.ending->by_verdict && host.ending->exit_code == kExitUsage;
    const bool is_early_head = stage_ == Stage::starting && host.index == head_;
    const bool too_few = count(Host::State::ordered) + count(Host::State::ready) < nodes_min(plan_);
    if (!stopping_ &&
        (is_early_head || ((is_usage || !host.ending) && too_few && !is_over(hosts_)))) {
        if (!was_ordered || is_usage || stage_ == Stage::starting) {
            cause_ = host.ending.value_or(CommandEnd{.exit_code = kExitSshFailed});
        }
        if (count(Host::State::ended) < hosts_.size()) {
            output_.say("the job cannot go on without host " + host.name);
        }
        stop_nodes(SIGTERM, kGraceOfNetwork);
    }
    end_if_all_ended();
}

void Launch::end_if_all_ended() {
    if (count(Host::State::ended) < hosts_.size()) {
        return;
    }
    std::vector<HostEnding> endings;
    for (const auto& host : hosts_) {
        endings.push_back(host->ending);
    }
    const bool has_report =
        std::ranges::any_of(endings, [](const HostEnding& ending) { return ending.has_value(); });
    end(cause_ && (!has_report || !stopped_by_user_)
            ? *cause_
            : common_ending(endings, head_, stopped_by_user_));
}

void Launch::end(CommandEnd ending) {
    stage_ = Stage::ended;
    ending_ = std::move(ending);
    io_.stop();
}

void Launch::handle_signal(int number) {
    const std::vector<int>& ending = plan_.options.run.signals;
    const bool is_forwarded =
        stage_ == Stage::running && std::ranges::find(ending, number) == ending.end();
    if (is_forwarded) {
        for (const auto& host : hosts_) {
            if (host->state == Host::State::ordered) {
                send_to(*host, Signal{number});
            }
        }
        return;
    }
    const std::string name = signal_name(number);
    if (stage_ == Stage::connecting || stage_ == Stage::starting) {
        output_.say(name + ": the job has not started");
        end({.exit_code = 128 + number, .signal = number});
        return;
    }
    const Instant now = clock_.now();
    if (now < after(signalled_at_, number == SIGINT ? kEchoLimitOfKeyboard : kEchoLimit)) {
        return;
    }
    signalled_at_ = now;
    stopped_by_user_ = true;
    cause_ = CommandEnd{.exit_code = 128 + number, .signal = number};
    switch (++signals_) {
        case 1:
            output_.say(name + ": the nodes of " + std::to_string(count(Host::State::ordered)) +
                        " host(s) are asked to leave; send the signal again to kill the workers "
                        "now");
            break;
        case 2:
            output_.say(name +
                        ": the workers are killed; send the signal again to close the "
                        "connections at once");
            break;
        default:
            close_all(name);
            return;
    }
    stop_nodes(number, signals_ == 1 ? grace_of_nodes(plan_) : kGraceOfNetwork);
}

void Launch::stop_nodes(int signal, Duration grace) {
    stopping_ = true;
    for (const auto& host : hosts_) {
        if (host->state == Host::State::ordered) {
            send_to(*host, Signal{signal});
        } else if (host->state != Host::State::ended && host->session) {
            host->kill_reason = "the job does not start";
            host->session->kill();
        }
    }
    close_all_after(grace);
}

void Launch::close_all_after(Duration grace) {
    deadline_.expires_after(grace);
    deadline_.async_wait([this, grace](const boost::system::error_code& error) {
        if (!error) {
            close_all("no end within " + format_duration(grace));
        }
    });
}

void Launch::close_all(const std::string& reason) {
    stopping_ = true;
    for (const auto& host : hosts_) {
        if (host->state != Host::State::ended && host->session) {
            host->kill_reason = "closed here: " + reason;
            host->session->kill();
        }
    }
}

}  // namespace regroup::launcher::ssh
