// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_command.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "agent/agent.h"
#include "agent/process/descriptor_limit.h"
#include "agent/process/quit_signals.h"
#include "agent/process/resolve_program.h"
#include "agent/process/warden.h"
#include "agent/workers/watchdog.h"
#include "launcher/ending_report.h"
#include "launcher/event_line.h"
#include "launcher/event_log.h"
#include "launcher/health_plan.h"
#include "launcher/host.h"
#include "launcher/hosted_daemon.h"
#include "launcher/output_plan.h"
#include "launcher/probe_port.h"
#include "launcher/run_plan.h"
#include "launcher/say.h"
#include "launcher/systemd/service_manager.h"
#include "launcher/worker_command.h"
#include "rendezvous/base/exit_code.h"
#include "rendezvous/client/deliver.h"

namespace regroup::launcher {

namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

constexpr Duration kOutputFlushLimit = std::chrono::seconds(1);
constexpr Duration kLastWordLimit = std::chrono::milliseconds(400);

// The lines of a node on another host need its name.
std::string own_prefix(const ssh::Supervisor* supervisor) {
    return supervisor != nullptr ? "[" + supervisor->host() + "] " : "";
}

// The signals that end the run, and SIGUSR1 and SIGUSR2, which are passed on to the workers.
std::vector<int> signals_of(const RunOptions& options) {
    std::vector<int> all = options.signals;
    for (const int passed_on : {SIGUSR1, SIGUSR2}) {
        if (std::find(all.begin(), all.end(), passed_on) == all.end()) {
            all.push_back(passed_on);
        }
    }
    return all;
}

// torchrun's exit codes: 0, 2 for a mistake on the command line, 1 for everything else. A signal
// before the first round ends the process by that signal.
Ending as_torchrun(const Ending& ending, bool has_run) {
    if (ending.signal != 0) {
        return has_run ? Ending{kExitJobFailed, 0} : ending;
    }
    const bool is_usage = ending.exit_code == kExitUsage && !has_run;
    const bool kept = ending.exit_code == 0 || is_usage;
    return {kept ? ending.exit_code : kExitJobFailed, 0};
}

agent::HangLimits hang_limits(const RunOptions& options) {
    agent::HangLimits limits;
    limits.factor = options.hang_factor;
    limits.floor = options.hang_floor;
    if (options.hang_timeout > Duration::zero()) {
        limits.most = options.hang_timeout;
    }
    return limits;
}

// As in torchrun, the environment asks for the watchdog, and may give the path of its FIFO. Empty:
// none is wanted.
std::string watchdog_file(const RunPlan& plan) {
    const char* wanted = std::getenv("TORCHELASTIC_ENABLE_FILE_TIMER");
    if (wanted == nullptr || std::string(wanted) != "1") {
        return "";
    }
    const char* given = std::getenv("TORCHELASTIC_TIMER_FILE");
    if (given != nullptr && *given != '\0') {
        return given;
    }
    std::error_code error;  // Also the warden asks, at the end: the folder may be gone.
    const fs::path folder = fs::temp_directory_path(error);
    return error ? "" : (folder / ("watchdog_timer_" + plan.agent.node)).string();
}

struct Preparation {
    RunOptions options;
    RunPlan plan;
    agent::WorkerCommand command;
    OutputPlan output;
    ServiceManager manager{};
};

/// The agent's process. It owns the objects of one node, in order of dependence.
class Node {
   public:
    /// `supervisor` may be null, and outlives it.
    Node(Preparation prepared, ssh::Supervisor* supervisor)
        : supervisor_(supervisor),
          run_options_(std::move(prepared.options)),
          plan_(std::move(prepared.plan)),
          command_(std::move(prepared.command)),
          output_plan_(std::move(prepared.output)),
          manager_(std::move(prepared.manager)),
          output_(io_, clock_,
                  {.files = !output_plan_.options.folder.empty(),
                   .in_place = terminal_has_cursor(),
                   .own_prefix = own_prefix(supervisor),
                   .on_job_line = job_lines_to(supervisor)}),
          daemon_(io_, clock_, run_options_,
                  [this](const std::string& line) { output_.say(line); }) {}

    /// Where the lines about the job go; empty: this node prints them.
    agent::OnJobLine job_lines_to(const ssh::Supervisor* supervisor) {
        if (supervisor == nullptr) {
            return {};
        }
        return [this, supervisor](const std::string& line, const std::string& topic) {
            output_.pass_on(/*to_stderr=*/false, supervisor->line(ssh::JobLine{line, topic}), 1);
        };
    }

    Ending run(agent::Warden& warden) {
        for (const std::string& note : plan_.notes) {
            output_.say(note);
        }
        if (const Result<void> opened = open_event_log(); !opened) {
            output_.say(opened.error().detail);
            return {kExitUsage, 0};
        }
        if (const Result<void> hosted = daemon_.open(plan_); !hosted) {
            output_.say(hosted.error().detail);
            return {kExitUsage, 0};
        }
        if (const Result<void> probed = open_probes(); !probed) {
            output_.say(probed.error().detail);
            return {kExitUsage, 0};
        }
        if (supervisor_ != nullptr && daemon_.is_open()) {
            supervisor_->tell(ssh::Serving{plan_.endpoint.port});
        }
        agent::AgentOptions options = agent_options(warden);
        if (const Result<void> watching = open_watchdog(options.group.command); !watching) {
            output_.say(watching.error().detail);
            return {kExitJobFailed, 0};
        }
        agent_ = std::make_unique<agent::Agent>(io_, clock_, output_, std::move(options));
        if (daemon_.is_open() && plan_.fixed_master) {
            daemon_.daemon().set_store_handler(
                [this](asio::ip::tcp::socket socket, const std::string& first_bytes) {
                    agent_->adopt_store_client(std::move(socket), first_bytes);
                });
        }
        const Result<void> started = agent_->start([this](const agent::Quit& quit) { end(quit); });
        if (!started) {
            output_.say(started.error().detail);
            return {kExitJobFailed, 0};
        }
        const Result<agent::QuitSignals> signals = listen_for_signals(warden.fd());
        if (!signals) {
            output_.say(signals.error().detail);
            return {kExitJobFailed, 0};
        }
        tell_manager();
        io_.run();
        output_.flush(after(clock_.now(), kOutputFlushLimit));
        if (ending_.exit_code == 0 || !agent_->has_run()) {
            remove_temporary(output_plan_);
        }
        return run_options_.front == Front::torchrun ? as_torchrun(ending_, agent_->has_run())
                                                     : ending_;
    }

   private:
    [[nodiscard]] agent::AgentConfig agent_config() const {
        agent::AgentConfig config = plan_.agent;
        config.stays_until_closed = daemon_.is_open();
        config.offer.hosts_rendezvous = daemon_.is_open() && plan_.other_endpoints.empty();
        config.offer.ends_with_daemon =
            daemon_.has_directory() && names_this_host(plan_.endpoint.host);
        return config;
    }

    agent::AgentOptions agent_options(agent::Warden& warden) {
        agent::AgentOptions options;
        options.core = agent_config();
        options.host_rendezvous = [this] {
            return daemon_.open_late(plan_) ? std::optional(agent_config()) : std::nullopt;
        };
        options.daemon_remembers = is_directory(run_options_.state);
        options.daemon.endpoints = plan_.other_endpoints;
        options.daemon.endpoints.insert(options.daemon.endpoints.begin(), plan_.endpoint);
        options.daemon.credentials = plan_.credentials;
        options.group.command = std::move(command_);
        options.group.output = output_plan_.options;
        options.group.host = short_host_name();
        options.group.full_host = full_host_name();
        options.store.mode = plan_.store_mode;
        options.store.dialect = run_options_.store_dialect;
        options.store.fixed_port = plan_.fixed_master ? plan_.endpoint.port : std::uint16_t{0};
        options.watch.limits = hang_limits(run_options_);
        options.watch.folder = output_plan_.options.folder;
        // Folders in torchrun's layout have only torchrun's files, for tools that read them.
        options.watch.keeps_ledger = output_plan_.options.layout != agent::OutputLayout::torchrun;
        options.health = health_checks(run_options_, plan_.agent, output_plan_.options.folder);
        const char* path = std::getenv("PATH");
        options.watch.search_path = path != nullptr ? path : "";
        options.watch.torch_pipe = torch_pipe();
        options.announces = run_options_.front != Front::torchrun;
        if (run_options_.console_events || event_log_) {
            options.group.on_event = [this](const agent::WorkerEvent& event) { record(event); };
        }
        options.daemon.on_last_word = [&warden](const rendezvous::Endpoint& daemon,
                                                const std::string& name, const std::string& bytes) {
            warden.set_last_word({daemon.host, daemon.port, name, bytes});
        };
        return options;
    }

    Result<void> open_event_log() {
        Result<std::unique_ptr<EventLog>> log =
            EventLog::open(io_, run_options_.event_log, "agent",
                           [this](const std::string& line) { output_.say(line); });
        if (!log) {
            return log.error();
        }
        event_log_ = std::move(*log);
        if (event_log_) {
            daemon_.on_daemon([this](rendezvous::Daemon& daemon, bool restores) {
                event_log_->write_events_of(daemon, restores);
            });
        }
        return {};
    }

    Result<void> open_probes() {
        if (!run_options_.probe_port) {
            return {};
        }
        probes_ = std::make_unique<ProbePort>(io_, clock_, [this] { return probe_state(); });
        const Result<void> opened = probes_->open(*run_options_.probe_port);
        return opened ? opened
                      : Result<void>(
                            Failure(opened.error().code, "--probe-port: " + opened.error().detail));
    }

    [[nodiscard]] ProbePort::State probe_state() const {
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

    void tell_manager() {
        const Result<void> told = manager_.ready(io_, [this] {
            return "job " + plan_.agent.job + ": node " + plan_.agent.offer.name + " " +
                   probe_state().text;
        });
        if (!told) {
            output_.say("systemd is not told that this node is ready: " + told.error().detail);
        }
    }

    void record(const agent::WorkerEvent& event) {
        if (run_options_.console_events &&
            event.state != agent::WorkerEvent::State::stacks_saved) {  // Not of torchrun's.
            output_.say_lines({event_line(event, run_options_, plan_.agent)});
        }
        if (event_log_) {
            event_log_->write(agent_event_line(event, plan_.agent, full_host_name(), wall_ms()));
        }
    }

    Result<void> open_watchdog(agent::WorkerCommand& command) {
        command.watchdog_file = watchdog_file(plan_);
        if (command.watchdog_file.empty()) {
            return {};
        }
        watchdog_ = std::make_unique<agent::Watchdog>(
            io_, [this](const std::string& line) { output_.say(line); });
        return watchdog_->open(command.watchdog_file);
    }

    Result<agent::QuitSignals> listen_for_signals(int warden_fd) {
        agent::QuitSignals::Handlers handlers;
        handlers.on_signal = [this](int signal) { obey(signal); };
        handlers.on_warden_gone = [this] {
            agent::end_without_warden([this] {
                remove_temporary(output_plan_);
                watchdog_.reset();
            });
        };
        if (supervisor_ != nullptr) {
            auto listener = ssh::Listener::open(
                io_, *supervisor_, output_,
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
        return agent::QuitSignals::listen(io_, warden_fd, signals_of(run_options_),
                                          std::move(handlers));
    }

    void obey(int signal) {
        const std::vector<int>& handled = run_options_.signals;
        const bool ends_run = std::find(handled.begin(), handled.end(), signal) != handled.end();
        // A scheduler may warn by such a signal (Slurm's --signal=USR1@60). If no worker
        // handles it, the node uses the warning to leave with its state saved.
        if (!ends_run && !agent_->would_only_end_workers(signal)) {
            agent_->forward(signal);
        } else {
            leave_by(signal);
        }
    }

    void leave_by(int signal) {
        const bool repeated = std::exchange(signalled_, true);
        if (repeated && repeats_sigterm_ && signal != SIGINT) {
            return;
        }
        if (!repeated) {
            const std::string again = repeats_sigterm_ ? "SIGINT" : "the signal again";
            output_.say(
                rendezvous::signal_name(signal) +
                (agent_->would_drain()
                     ? (agent_->holds_state() ? ": the workers save at the next step boundary and "
                                                "leave; send " +
                                                    again + " to kill them now"
                                              : ": leaving as soon as the job can do without this "
                                                "node; send " +
                                                    again + " to leave now")
                 : agent_->has_run() ? ": stopping the workers"
                                     : ": leaving the rendezvous"));
        }
        agent_->request_quit(signal);
        daemon_.hurry();
    }

    // Only at the end: from then on systemd gives this process as long as for a stop, and a node
    // that drains may take longer.
    void end(const agent::Quit& quit) {
        manager_.stopping("leaving job " + plan_.agent.job);
        ending_ = {.exit_code = quit.exit_code,
                   .signal = quit.signal,
                   .by_verdict = quit.verdict.has_value()};
        EndingReport report(run_options_, plan_, output_, /*collects=*/supervisor_ != nullptr);
        report.tell(quit, {.has_run = agent_->has_run(),
                           .was_standby = agent_->was_standby(),
                           .goodput = agent_->goodput(),
                           .endpoint_note = endpoint_note(quit)});
        ending_.report = report.take_common_lines();
        daemon_.leave(quit, [this] { io_.stop(); });
    }

    // For a node that got no place: the endpoints, and the process of this host that has the port,
    // if it is no daemon or has refused this node.
    [[nodiscard]] std::string endpoint_note(const agent::Quit& quit) const {
        const bool is_refused = quit.reason.cause == agent::QuitCause::refused;
        if (!is_refused && quit.exit_code != kExitNoRendezvous) {
            return "";
        }
        const std::string holder =
            agent_->hears_daemon() && !is_refused ? "" : daemon_.port_holder();
        if (is_refused) {
            return holder.empty() ? "" : "; " + holder;
        }
        std::string endpoints = plan_.endpoint.text();
        for (const rendezvous::Endpoint& other : plan_.other_endpoints) {
            endpoints += ", " + other.text();
        }
        return (plan_.other_endpoints.empty() ? "; the endpoint is " : "; the endpoints are ") +
               endpoints + (holder.empty() ? "" : ", and " + holder) +
               (agent_->has_run() ? "" : plan_.endpoint_hint);
    }

    const SteadyClock clock_;
    ssh::Supervisor* const supervisor_;
    RunOptions run_options_;
    RunPlan plan_;
    agent::WorkerCommand command_;
    OutputPlan output_plan_;
    asio::io_context io_{1};
    ServiceManager manager_;
    agent::OutputRelay output_;
    std::unique_ptr<EventLog> event_log_;  // May be null.
    HostedDaemon daemon_;
    std::unique_ptr<agent::Watchdog> watchdog_;
    std::unique_ptr<agent::Agent> agent_;
    std::unique_ptr<ProbePort> probes_;  // May be null.
    std::unique_ptr<ssh::Listener> listener_;
    bool signalled_ = false;
    /// Slurm's next SIGTERM does not mean that its time to save is over. That of launch-ssh does.
    const bool repeats_sigterm_ = supervisor_ == nullptr && repeats_sigterm(process_environment());
    Ending ending_{kExitJobFailed, 0};  ///< Until there is a verdict or another reason.
};

Ending ending_of(const Failure& failure, const std::string& who, int exit_code = kExitUsage) {
    complain(who, failure.detail);
    return {exit_code, 0};
}

// As PyTorch's torchrun: if the program is installed in a virtual environment, the Python of that
// environment.
std::string python_beside(const std::string& program) {
    const char* path = std::getenv("PATH");
    const Result<std::string> found = agent::resolve_program(program, path != nullptr ? path : "");
    if (!found) {
        return "";
    }
    const fs::path folder = fs::path(*found).parent_path();
    std::error_code error;
    const bool is_environment = fs::exists(folder.parent_path() / "pyvenv.cfg", error);
    return is_environment && fs::exists(folder / "python3", error) ? (folder / "python3").string()
                                                                   : "";
}

Result<Preparation> prepare(RunOptions options) {
    Preparation prepared;
    if (options.front == Front::torchrun) {
        options.interpreter = python_beside(program_invocation_name);
    }
    Result<RunPlan> plan = make_run_plan(options);
    if (!plan) {
        return plan.error();
    }
    prepared.plan = std::move(*plan);
    Result<agent::WorkerCommand> command =
        make_worker_command(options, prepared.plan.agent.offer.workers, prepared.plan.notes);
    if (!command) {
        return command.error();
    }
    prepared.command = std::move(*command);
    Result<OutputPlan> output =
        make_output_plan(options, prepared.plan.agent.job, prepared.plan.notes);
    if (!output) {
        return output.error();
    }
    prepared.output = std::move(*output);
    prepared.options = std::move(options);
    return prepared;
}

// The agent with its daemon and logs has about 28 open, and for a moment some more. Each worker
// adds six (its pidfd, its page, two pipes, two files), and with the SDK or PyTorch its connections
// to the agent and to the store.
constexpr std::uint64_t kDescriptorsOfAgent = 36;
constexpr std::uint64_t kDescriptorsOfWorker = 8;

// Without them the agent could not reach its own workers, or not know them for its own.
Result<void> require_descriptors(const RunPlan& plan) {
    const std::uint64_t workers = plan.agent.offer.workers;
    const Result<void> enough =
        agent::require_descriptors(kDescriptorsOfAgent + kDescriptorsOfWorker * workers);
    if (enough) {
        return {};
    }
    return Failure(enough.error().code,
                   "--nproc-per-node " + std::to_string(workers) + ": " + enough.error().detail +
                       "; raise the limit (ulimit -n), or start fewer workers");
}

// The warden runs it when the agent is dead. The daemon may be gone, too.
agent::Warden::Deliver last_word_sender(const RunPlan& plan) {
    const security::Identity identity{plan.credentials, {security::Role::node, plan.agent.job}};
    return [identity](const agent::Warden::LastWord& word) {
        rendezvous::deliver({word.address, word.port}, word.name, word.bytes, identity,
                            kLastWordLimit);
    };
}

// The warden runs it when the agent was killed.
void clean_up_after(const Preparation& prepared) {
    remove_temporary(prepared.output);
    const std::string fifo = watchdog_file(prepared.plan);
    struct stat status{};
    if (!fifo.empty() && ::lstat(fifo.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
        ::unlink(fifo.c_str());
    }
}

}  // namespace

Ending run_command(Front front, std::span<const std::string> arguments,
                   const Supervision* supervision) {
    ssh::Supervisor* const supervisor = supervision != nullptr ? &supervision->supervisor : nullptr;
    const std::string who = own_prefix(supervisor) + "regroup";
    Result<std::variant<RunOptions, ShowText>> parsed = parse_run_options(front, arguments);
    if (!parsed) {
        return ending_of(parsed.error(), who);
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return {};
    }
    auto& options = std::get<RunOptions>(*parsed);
    if (supervision != nullptr) {
        options.allocation = supervision->allocation;
        options.is_host = supervision->is_head;
        options.trust.token = supervision->token;
    }
    ServiceManager manager;  // Before the plan takes the environment for the workers.
    Result<Preparation> prepared = prepare(std::move(options));
    if (!prepared) {
        return ending_of(prepared.error(), who);
    }
    if (const Result<void> enough = require_descriptors(prepared->plan); !enough) {
        return ending_of(enough.error(), who);
    }
    Result<agent::Warden> warden =
        agent::Warden::split(signals_of(prepared->options), last_word_sender(prepared->plan),
                             [&prepared] { clean_up_after(*prepared); });
    if (!warden) {
        return ending_of(warden.error(), who, kExitJobFailed);
    }
    prepared->manager = std::move(manager);
    Node node(std::move(*prepared), supervisor);
    Ending ending = node.run(*warden);
    warden->say_goodbye();
    return ending;
}

}  // namespace regroup::launcher
