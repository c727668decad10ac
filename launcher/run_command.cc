// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_command.h"

#include <algorithm>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <optional>
#include <unistd.h>
#include <utility>

#include <boost/asio/io_context.hpp>

#include "agent/agent.h"
#include "agent/process/quit_signals.h"
#include "agent/process/resolve_program.h"
#include "agent/process/warden.h"
#include "agent/worker_environment.h"
#include "launcher/host.h"
#include "launcher/report.h"
#include "launcher/run_plan.h"
#include "rendezvous/server/daemon.h"

extern char** environ;

namespace regroup::launcher {

namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

constexpr Duration kFlushLimit = std::chrono::seconds(1);
constexpr const char* kDefaultLogDir = "regroup-runs";
constexpr const char* kDefaultPath = "/usr/local/bin:/usr/bin:/bin";

void say(const std::string& line) {
    std::fprintf(stderr, "regroup: %s\n", line.c_str());
}

Failure usage(const std::string& sentence) {
    return Failure(Errc::invalid_argument, sentence);
}

std::string variable_or(const char* name, const char* fallback) {
    const char* value = std::getenv(name);
    return value != nullptr ? value : fallback;
}

// The program as it is, or as Python would run it.
Result<agent::WorkerCommand> make_command(const RunOptions& options, std::uint32_t workers) {
    agent::WorkerCommand command;
    const bool python = options.module || (!options.no_python && options.program.ends_with(".py"));
    if (python) {
        command.arguments = {variable_or("PYTHON_EXEC", "python3"), "-u"};
        if (options.module) {
            command.arguments.push_back("-m");
        } else if (std::error_code error; !fs::is_regular_file(options.program, error)) {
            return usage("program " + options.program + " does not exist");
        }
    }
    command.arguments.push_back(options.program);
    command.arguments.insert(command.arguments.end(), options.arguments.begin(),
                             options.arguments.end());
    Result<std::string> executable =
        agent::resolve_program(command.arguments.front(), variable_or("PATH", kDefaultPath));
    if (!executable) {
        return executable.error();
    }
    command.executable = std::move(*executable);
    for (char** entry = environ; *entry != nullptr; ++entry) {
        command.environment.emplace_back(*entry);
    }
    if (workers > 1 && agent::find_variable(command.environment, "OMP_NUM_THREADS") == nullptr) {
        command.environment.emplace_back("OMP_NUM_THREADS=1");
        say("OMP_NUM_THREADS is not set; each of this node's " + std::to_string(workers) +
            " workers gets 1, so that they do not crowd each other (set it to choose yourself)");
    }
    return command;
}

// A job id as one path component.
std::string folder_name(std::string job) {
    std::replace(job.begin(), job.end(), '/', '_');
    return job.empty() || job.front() == '.' ? "_" + job : job;
}

// The job's folder, made and writable; empty for none. Only a folder that was asked for must work.
Result<fs::path> make_log_dir(const RunOptions& options, const std::string& job) {
    const std::string base = options.log_dir.value_or(kDefaultLogDir);
    if (base == "/dev/null") {
        return fs::path();
    }
    std::error_code error;
    const fs::path folder = fs::absolute(base, error) / folder_name(job);
    fs::create_directories(folder, error);
    if (!error && ::access(folder.c_str(), W_OK | X_OK) != 0) {
        error = std::error_code(errno, std::generic_category());
    }
    if (!error) {
        return folder;
    }
    const std::string sentence =
        "--log-dir: cannot write to " + folder.string() + ": " + error.message();
    if (options.log_dir) {
        return usage(sentence);
    }
    say(sentence + "; output is only shown here");
    return fs::path();
}

/// The agent's process: the objects of one node, owned in order of dependence.
class Node {
   public:
    Node(RunPlan plan, agent::WorkerCommand command, fs::path log_dir)
        : plan_(std::move(plan)),
          command_(std::move(command)),
          log_dir_(std::move(log_dir)),
          output_(io_, clock_, {.files = !log_dir_.empty()}) {}

    /// `warden_fd`: see QuitSignals.
    Ending run(int warden_fd) {
        for (const std::string& note : plan_.notes) {
            output_.say(note);
        }
        if (const Result<void> hosted = host_daemon(); !hosted) {
            output_.say(hosted.error().detail);
            return {agent::kExitUsage, 0};
        }
        agent::AgentOptions options;
        options.core = plan_.agent;
        options.endpoint = plan_.endpoint;
        options.command = std::move(command_);
        options.log_dir = log_dir_;
        options.host = short_host_name();
        options.fixed_store_port = plan_.fixed_master ? plan_.endpoint.port : std::uint16_t{0};
        agent_ = std::make_unique<agent::Agent>(io_, clock_, output_, std::move(options));
        if (daemon_ && plan_.fixed_master) {
            daemon_->set_store_handler(
                [this](asio::ip::tcp::socket socket, std::string first_bytes) {
                    agent_->store().adopt(std::move(socket), std::move(first_bytes));
                });
        }
        const Result<void> started = agent_->start([this](const agent::Quit& quit) { end(quit); });
        if (!started) {
            output_.say(started.error().detail);
            return {agent::kExitJobFailed, 0};
        }
        const Result<agent::QuitSignals> signals = listen_for_signals(warden_fd);
        if (!signals) {
            output_.say(signals.error().detail);
            return {agent::kExitJobFailed, 0};
        }
        io_.run();
        output_.flush(after(clock_.now(), kFlushLimit));
        return ending_;
    }

   private:
    Result<void> host_daemon() {
        if (plan_.hosting == Hosting::never) {
            return {};
        }
        auto daemon = std::make_unique<rendezvous::Daemon>(io_, clock_, rendezvous::DaemonLimits(),
                                                           [](const std::string&) {});
        const Result<std::uint16_t> port = daemon->listen(plan_.bind_address, plan_.endpoint.port);
        if (port) {
            daemon_ = std::move(daemon);
            plan_.endpoint.port = *port;
            return {};
        }
        if (plan_.hosting == Hosting::if_port_free) {
            // Another agent of this host serves the same endpoint; if it is somebody else, the
            // connection will tell.
            port_holder_ = port.error().detail;
            return {};
        }
        return Failure(port.error().code, "cannot serve the rendezvous at " +
                                              plan_.endpoint.text() + ": " + port.error().detail +
                                              "; choose another port");
    }

    Result<agent::QuitSignals> listen_for_signals(int warden_fd) {
        agent::QuitSignals::Handlers handlers;
        handlers.on_signal = [this](int signal) {
            if (signal == SIGUSR1 || signal == SIGUSR2) {
                agent_->forward(signal);
                return;
            }
            output_.say(rendezvous::signal_name(signal) +
                        (signalled_ ? " again: killing the workers" : ": stopping the workers"));
            signalled_ = true;
            agent_->request_quit(signal);
        };
        handlers.on_warden_gone = [] { agent::end_without_warden(); };
        return agent::QuitSignals::listen(io_, warden_fd, std::move(handlers));
    }

    void end(const agent::Quit& quit) {
        using rendezvous::Outcome;
        ending_ = {quit.exit_code, quit.signal};
        if (quit.verdict && quit.verdict->outcome == Outcome::succeeded && !agent_->has_run()) {
            output_.say("nothing was run here: job " + plan_.agent.job +
                        " had already ended, closed by " + quit.verdict->author + ": " +
                        quit.verdict->reason + " (a new job needs another --rdzv-id)");
        } else if (quit.verdict && quit.verdict->outcome == Outcome::failed) {
            output_.say_text(failure_report(plan_.agent.job, *quit.verdict));
        } else if (const std::string line = ending_line(plan_.agent.job, quit); !line.empty()) {
            output_.say(line + (quit.exit_code == agent::kExitNoRendezvous ? endpoint_note() : ""));
        }
        const auto finish = [this] { io_.stop(); };
        if (!daemon_) {
            finish();
        } else if (quit.verdict) {
            daemon_->flush(kFlushLimit, finish);
        } else {
            // With this process the job's rendezvous goes away: better said than found out.
            daemon_->stop("node " + plan_.agent.offer.name,
                          "the rendezvous ended with its host (" + quit.reason + ")", kFlushLimit,
                          finish);
        }
    }

    // For who found no rendezvous: where it was sought, and who holds that port of this host.
    [[nodiscard]] std::string endpoint_note() const {
        return "; the endpoint is " + plan_.endpoint.text() +
               (port_holder_.empty() ? "" : ", and " + port_holder_);
    }

    const SteadyClock clock_;
    RunPlan plan_;
    agent::WorkerCommand command_;
    fs::path log_dir_;
    asio::io_context io_{1};
    agent::OutputRelay output_;
    std::unique_ptr<rendezvous::Daemon> daemon_;
    std::unique_ptr<agent::Agent> agent_;
    std::string port_holder_;
    bool signalled_ = false;
    Ending ending_;
};

Ending usage_ending(const Failure& failure) {
    say(failure.detail);
    return {agent::kExitUsage, 0};
}

}  // namespace

Ending run_command(std::span<const std::string> arguments) {
    Result<std::variant<RunOptions, ShowText>> parsed = parse_run_options(arguments);
    if (!parsed) {
        return usage_ending(parsed.error());
    }
    if (const auto* show = std::get_if<ShowText>(&*parsed)) {
        std::fputs(show->text.c_str(), stdout);
        return {};
    }
    const RunOptions& options = std::get<RunOptions>(*parsed);
    Result<RunPlan> plan = make_run_plan(options);
    if (!plan) {
        return usage_ending(plan.error());
    }
    Result<agent::WorkerCommand> command = make_command(options, plan->agent.offer.workers);
    if (!command) {
        return usage_ending(command.error());
    }
    Result<fs::path> log_dir = make_log_dir(options, plan->agent.job);
    if (!log_dir) {
        return usage_ending(log_dir.error());
    }
    Result<agent::Warden> warden = agent::Warden::split();
    if (!warden) {
        say(warden.error().detail);
        return {agent::kExitJobFailed, 0};
    }
    Node node(std::move(*plan), std::move(*command), std::move(*log_dir));
    const Ending ending = node.run(warden->fd());
    warden->say_goodbye();
    return ending;
}

}  // namespace regroup::launcher
