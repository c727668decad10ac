// SPDX-License-Identifier: Apache-2.0
#include "launcher/node.h"

#include <algorithm>
#include <csignal>
#include <utility>

#include "launcher/ending_report.h"
#include "launcher/event_line.h"
#include "launcher/host.h"
#include "launcher/output_plan.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/wall_clock.h"

namespace regroup::launcher {

namespace {

namespace asio = boost::asio;

constexpr Duration kOutputFlushLimit = std::chrono::seconds(1);

// torchrun's exit codes: 0, 2 for a mistake on the command line, 1 for everything else. A signal
// before the first round ends the process by that signal.
CommandEnd as_torchrun(const CommandEnd& ending, bool has_run) {
    if (ending.signal != 0) {
        return has_run ? CommandEnd{kExitJobFailed} : ending;
    }
    const bool is_usage = ending.exit_code == kExitUsage && !has_run;
    const bool kept = ending.exit_code == 0 || is_usage;
    return {kept ? ending.exit_code : kExitJobFailed};
}

}  // namespace

std::string own_prefix(const ssh::Supervisor* supervisor) {
    return supervisor != nullptr ? "[" + supervisor->host() + "] " : "";
}

std::vector<int> signals_of(const RunPlan& plan) {
    std::vector<int> all = plan.signals;
    for (const int passed_on : {SIGUSR1, SIGUSR2}) {
        if (std::ranges::find(all, passed_on) == all.end()) {
            all.push_back(passed_on);
        }
    }
    return all;
}

Node::Node(RunPlan plan, ServiceManager manager, ssh::Supervisor* supervisor)
    : supervisor_(supervisor),
      plan_(std::move(plan)),
      manager_(std::move(manager)),
      output_(io_, clock_,
              {.files = !plan_.agent.group.output.folder.empty(),
               .in_place = terminal_has_cursor(),
               .own_prefix = own_prefix(supervisor),
               .on_job_line = job_lines()}),
      daemon_(io_, clock_, plan_, [this](const std::string& line) { output_.say(line); }),
      repeats_sigterm_(supervisor == nullptr && repeats_sigterm(process_environment())),
      ending_{kExitJobFailed} {}

// Empty: this node prints the lines about the job.
agent::OnJobLine Node::job_lines() {
    if (supervisor_ == nullptr) {
        return {};
    }
    return [this](const std::string& line, const std::string& topic) {
        output_.pass_on(/*to_stderr=*/false, supervisor_->line(ssh::JobLine{line, topic}), 1);
    };
}

CommandEnd Node::run(agent::Warden& warden) {
    const auto fail = [this](const Failure& failure, int exit_code) {
        output_.say(failure.detail);
        return CommandEnd{exit_code};
    };
    for (const std::string& note : plan_.notes) {
        output_.say(note);
    }
    if (const Result<void> opened = open(); !opened) {
        return fail(opened.error(), kExitUsage);
    }
    if (const Result<void> started = start(warden); !started) {
        return fail(started.error(), kExitJobFailed);
    }
    const Result<agent::QuitSignals> signals = listen_for_signals(warden.fd());
    if (!signals) {
        return fail(signals.error(), kExitJobFailed);
    }
    tell_manager();
    io_.run();
    output_.flush(after(clock_.now(), kOutputFlushLimit));
    if (ending_.exit_code == 0 || !agent_->has_run()) {
        remove_temporary(plan_.temporary_folder);
    }
    return plan_.as_torchrun ? as_torchrun(ending_, agent_->has_run()) : ending_;
}

Result<void> Node::open() {
    Result<std::unique_ptr<EventLog>> log = EventLog::open(
        io_, plan_.event_log, "agent", [this](const std::string& line) { output_.say(line); });
    if (!log) {
        return log.error();
    }
    event_log_ = std::move(*log);
    if (event_log_) {
        daemon_.on_daemon([this](rendezvous::Daemon& daemon, bool restores) {
            event_log_->write_events_of(daemon, restores);
        });
    }
    if (Result<void> hosted = daemon_.open(); !hosted) {
        return hosted;
    }
    if (Result<void> probed = open_probes(); !probed) {
        return probed;
    }
    if (supervisor_ != nullptr && daemon_.is_open()) {
        supervisor_->tell(ssh::Serving{plan_.daemon.endpoint.port});
    }
    return {};
}

Result<void> Node::start(agent::Warden& warden) {
    agent::AgentOptions options = agent_options(warden);
    if (const std::string& file = options.group.command.watchdog_file; !file.empty()) {
        watchdog_ = std::make_unique<agent::Watchdog>(
            io_, [this](const std::string& line) { output_.say(line); });
        if (Result<void> watching = watchdog_->open(file); !watching) {
            return watching;
        }
    }
    agent_ = std::make_unique<agent::Agent>(io_, clock_, output_, std::move(options));
    if (daemon_.is_open() && plan_.daemon.fixed_master) {
        daemon_.daemon().set_store_handler(
            [this](asio::ip::tcp::socket socket, const std::string& first_bytes) {
                agent_->adopt_store_client(std::move(socket), first_bytes);
            });
    }
    return agent_->start([this](const agent::Quit& quit) { end(quit); });
}

agent::AgentConfig Node::agent_config() const {
    agent::AgentConfig config = plan_.agent.core;
    config.stays_until_closed = daemon_.is_open();
    config.offer.hosts_rendezvous = daemon_.is_open() && plan_.daemon.other_endpoints.empty();
    config.offer.ends_with_daemon =
        daemon_.has_directory() && names_this_host(plan_.daemon.endpoint.host);
    return config;
}

agent::AgentOptions Node::agent_options(agent::Warden& warden) {
    agent::AgentOptions options = plan_.agent;
    options.core = agent_config();
    options.host_rendezvous = [this] {
        return daemon_.open_late() ? std::optional(agent_config()) : std::nullopt;
    };
    options.daemon.endpoints = plan_.daemon.other_endpoints;
    options.daemon.endpoints.insert(options.daemon.endpoints.begin(), plan_.daemon.endpoint);
    options.store.fixed_port =
        plan_.daemon.fixed_master ? plan_.daemon.endpoint.port : std::uint16_t{0};
    if (plan_.console_events || event_log_) {
        options.group.on_event = [this](const agent::WorkerEvent& event) { record(event); };
    }
    options.daemon.on_last_word = [&warden](const rendezvous::Endpoint& daemon,
                                            const std::string& name, const std::string& bytes) {
        warden.set_last_word({daemon.host, daemon.port, name, bytes});
    };
    return options;
}

Result<void> Node::open_probes() {
    if (!plan_.probe_port) {
        return {};
    }
    probes_ = std::make_unique<ProbePort>(io_, clock_, [this] { return probe_state(); });
    const Result<void> opened = probes_->open(*plan_.probe_port);
    return opened ? opened
                  : Result<void>(
                        Failure(opened.error().code, "--probe-port: " + opened.error().detail));
}

ProbePort::State Node::probe_state() const {
    using Part = agent::AgentCore::Part;
    switch (agent_ != nullptr ? agent_->part() : Part::none) {
        case Part::member:
            return {true, "in a round"};
        case Part::standby:
            return {true, "waits as a standby"};
        case Part::leaving:
            return {false, "leaves"};
        case Part::none:
            break;
    }
    return {false, "waits for a round"};
}

void Node::tell_manager() {
    const Result<void> told = manager_.ready(io_, [this] {
        return "job " + plan_.agent.core.job + ": node " + plan_.agent.core.offer.name + " " +
               probe_state().text;
    });
    if (!told) {
        output_.say("systemd is not told that this node is ready: " + told.error().detail);
    }
}

void Node::record(const agent::WorkerEvent& event) {
    if (plan_.console_events &&
        event.state != agent::WorkerEvent::State::stacks_saved) {  // Not of torchrun's.
        output_.say_lines({event_line(event, *plan_.console_events, plan_.agent.core)});
    }
    if (event_log_) {
        event_log_->write(agent_event_line(event, plan_.agent.core, full_host_name(), wall_ms()));
    }
}

Result<agent::QuitSignals> Node::listen_for_signals(int warden_fd) {
    agent::QuitSignals::Handlers handlers;
    handlers.on_signal = [this](int signal) { obey(signal); };
    handlers.on_warden_gone = [this] {
        agent::end_without_warden([this] {
            remove_temporary(plan_.temporary_folder);
            watchdog_.reset();
        });
    };
    if (supervisor_ != nullptr) {
        auto listener =
            ssh::Listener::open(io_, *supervisor_, output_,
                                {.on_signal = [this](int signal) { obey(signal); },
                                 .on_gone =
                                     [this] {
                                         output_.say("the connection to the launcher is closed");
                                         leave_by(SIGHUP);
                                     }});
        if (!listener) {
            return listener.error();
        }
        listener_ = *std::move(listener);
    }
    return agent::QuitSignals::listen(io_, warden_fd, signals_of(plan_), std::move(handlers));
}

void Node::obey(int signal) {
    const std::vector<int>& handled = plan_.signals;
    const bool ends_run = std::find(handled.begin(), handled.end(), signal) != handled.end();
    // A scheduler may warn by such a signal (Slurm's --signal=USR1@60). If no worker
    // handles it, the node uses the warning to leave with its state saved.
    if (!ends_run && !agent_->would_only_end_workers(signal)) {
        agent_->forward(signal);
    } else {
        leave_by(signal);
    }
}

void Node::leave_by(int signal) {
    const bool repeated = std::exchange(signalled_, true);
    if (repeated && repeats_sigterm_ && signal != SIGINT) {
        return;
    }
    if (!repeated) {
        const std::string again = repeats_sigterm_ ? "SIGINT" : "the signal again";
        output_.say(
            signal_name(signal) +
            (agent_->would_drain()
                 ? (agent_->holds_state() ? ": the workers save at the next step boundary and "
                                            "leave; send " +
                                                again + " to kill them now"
                                          : ": leaving as soon as the job can do without this "
                                            "node; send " +
                                                again + " to leave now")
             : agent_->has_run() ? ": stopping the workers"
                                 : ": leaving the job"));
    }
    agent_->request_quit(signal);
    daemon_.hurry();
}

// Only at the end: from then on systemd gives this process as long as for a stop, and a node
// that drains may take longer.
void Node::end(const agent::Quit& quit) {
    manager_.stopping("leaving job " + plan_.agent.core.job);
    ending_ = {
        .exit_code = quit.exit_code, .signal = quit.signal, .by_verdict = quit.verdict.has_value()};
    EndingReport report(plan_, output_, /*collects=*/supervisor_ != nullptr);
    report.tell(quit, {.has_run = agent_->has_run(),
                       .was_standby = agent_->was_standby(),
                       .goodput = agent_->goodput(),
                       .endpoint_note = endpoint_note(quit)});
    ending_.report = report.take_common_lines();
    daemon_.leave(quit, [this] { io_.stop(); });
}

std::string Node::endpoint_note(const agent::Quit& quit) const {
    const bool is_refused = quit.reason.cause == agent::QuitCause::refused;
    if (!is_refused && quit.exit_code != kExitNoRendezvous) {
        return "";
    }
    const std::string holder = agent_->hears_daemon() && !is_refused ? "" : daemon_.port_holder();
    if (is_refused) {
        return holder.empty() ? "" : "; " + holder;
    }
    std::string endpoints = plan_.daemon.endpoint.text();
    for (const rendezvous::Endpoint& other : plan_.daemon.other_endpoints) {
        endpoints += ", " + other.text();
    }
    return (plan_.daemon.other_endpoints.empty() ? "; the endpoint is " : "; the endpoints are ") +
           endpoints + (holder.empty() ? "" : ", and " + holder) +
           (agent_->has_run() ? "" : plan_.daemon.endpoint_hint);
}

}  // namespace regroup::launcher
