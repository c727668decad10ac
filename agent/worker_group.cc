// SPDX-License-Identifier: Apache-2.0
//
// How a WorkerGroup starts processes and sees them end. The messages to and from workers are in
// worker_group_talk.cc.
#include "agent/worker_group.h"

#include <algorithm>
#include <csignal>
#include <ctime>
#include <unistd.h>
#include <utility>

#include "agent/error_file.h"
#include "agent/link/round_key.h"
#include "agent/process/proc_files.h"
#include "agent/process/process_tree.h"
#include "agent/template_text.h"
#include "agent/worker_environment.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/net/route.h"

namespace regroup::agent {

namespace {

// Time limit for killing the descendants of a worker.
constexpr Duration kTreeLimit = std::chrono::seconds(5);
// Interval of checks on workers that are about to end. A check takes some ten microseconds.
constexpr Duration kLookFirst = std::chrono::milliseconds(1);
constexpr Duration kLookLongest = std::chrono::milliseconds(50);
// After so many checks only the pidfd counts: the process has executed another program, or ends
// with success.
constexpr int kLooksMax = 8;

std::string wall_clock_time() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y-%m-%d %H:%M:%S", &local);
    return text;
}

}  // namespace

WorkerGroup::WorkerGroup(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
                         WorkerGroupOptions options,
                         std::function<void(const AgentEvent&)> on_event)
    : io_(io),
      clock_(clock),
      output_(output),
      options_(std::move(options)),
      on_event_(std::move(on_event)),
      launcher_(io),
      reaper_(io, launcher_),
      look_timer_(io),
      files_timer_(io) {}

// ---- Starting.

void WorkerGroup::launch(const LaunchWorkers& launch, const std::string& own_address) {
    choose_interface(launch.assignment, own_address);
    for (const std::uint32_t local_rank : launch.local_ranks) {
        start(launch.assignment, local_rank, false);
    }
    begin_records();
}

void WorkerGroup::prestart(const PrestartWorkers& prestart, const std::string& own_address) {
    Assignment unknown;
    unknown.group_world_size = 2;  // A standby joins other nodes.
    choose_interface(unknown, own_address);
    for (const std::uint32_t local_rank : prestart.local_ranks) {
        start(unknown, local_rank, true);
    }
    open_files_soon();
}

// Without a chosen interface, Gloo resolves the host name and may fall back to loopback.
void WorkerGroup::choose_interface(const Assignment& assignment, const std::string& own_address) {
    network_interface_.clear();
    for (const std::string& address : {assignment.master_addr, own_address}) {
        if (assignment.group_world_size > 1 && network_interface_.empty() && !address.empty()) {
            network_interface_ = net::interface_towards(address);
        }
    }
}

void WorkerGroup::start(const Assignment& assignment, std::uint32_t local_rank, bool ahead) {
    const std::uint64_t key = ++last_key_;
    Process& process = processes_[key];
    process.local_rank = local_rank;
    process.launched_in = assignment.round;
    process.assignment = assignment;
    WorkerIdentity identity = identity_of(assignment, local_rank);
    identity.ahead = ahead;
    const WorkerOutput plan = plan_output(options_.output, identity, options_.node, options_.host);
    make_folder(worker_folder(options_.output, identity));
    process.error_file = identity.error_file = plan.error_file;
    if (!plan.error_file.empty()) {
        ::unlink(plan.error_file.c_str());  // Remove the file of an earlier run.
    }
    if (link_) {
        if (Result<std::shared_ptr<SharedPage>> page = SharedPage::create()) {
            process.page = *page;
            (**page)->draining.store(draining_ ? 1 : 0);
            identity.agent_socket = link_->address();
            identity.worker_id =
                link_->expect(key, *std::move(page),
                              {.round = number(assignment.round), .key = round_key(assignment)});
        }
    }
    Result<OutputRelay::Pipes> pipes = output_.open(local_rank, plan.out, plan.err);
    if (!pipes) {
        not_started(key, pipes.error());
    } else if (ProcessSpec spec = spec_of(identity, *pipes);
               fork_server_ && fork_server_->serves()) {
        fork(key, std::move(spec), std::move(*pipes));
    } else {
        execute(key, spec);
    }
}

void WorkerGroup::execute(std::uint64_t key, const ProcessSpec& spec) {
    Result<ChildProcess> child = launcher_.launch(spec);
    if (child) {
        started(key, std::move(*child));
    } else {
        not_started(key, child.error());
    }
}

void WorkerGroup::fork(std::uint64_t key, ProcessSpec spec, OutputRelay::Pipes pipes) {
    // Kept for a start without the fork server.
    auto kept = std::make_shared<std::pair<ProcessSpec, OutputRelay::Pipes>>(std::move(spec),
                                                                             std::move(pipes));
    processes_.at(key).launch =
        fork_server_->launch(kept->first, options_.command.python_program_begin,
                             [this, key, kept](Result<ChildProcess> child) {
                                 processes_.at(key).launch.reset();
                                 if (child) {
                                     started(key, std::move(*child));
                                 } else {
                                     execute(key, kept->first);
                                 }
                             });
}

void WorkerGroup::started(std::uint64_t key, ChildProcess child) {
    Process& process = processes_.at(key);
    process.child.emplace(std::move(child));
    process.child->async_wait([this, key](ExitStatus status) { reaped(key, status); });
    record(WorkerEvent::State::started, process, 0);
}

void WorkerGroup::start_fork_server() {
    const WorkerCommand& command = options_.command;
    if (command.preload.empty()) {
        return;
    }
    const auto program =
        command.arguments.begin() + static_cast<std::ptrdiff_t>(command.python_program_begin);
    ForkServerOptions options;
    options.interpreter = command.executable;
    options.options.assign(command.arguments.begin(), program);
    options.program.assign(program, command.arguments.end());
    options.modules = command.preload;
    options.environment = command.environment;
    fork_server_.emplace(io_, launcher_, std::move(options),
                         [this](const std::string& line) { output_.say(line); });
    fork_server_->start();
}

ProcessSpec WorkerGroup::spec_of(const WorkerIdentity& identity,
                                 const OutputRelay::Pipes& pipes) const {
    const WorkerCommand& command = options_.command;
    ProcessSpec spec;
    spec.executable = command.executable;
    spec.arguments = command.arguments;
    const std::map<std::string, std::string> values{
        {"local_rank", std::to_string(identity.local_rank)}};
    for (std::size_t i = command.templates_begin; i < spec.arguments.size(); ++i) {
        std::string& argument = spec.arguments[i];
        argument = command.templates_of_torchrun ? substitute(argument, values)
                                                 : substitute_braced(argument, values);
    }
    if (identity.local_rank < command.placements.size()) {
        const RankPlacement& place = command.placements[identity.local_rank];
        spec.cpus = place.cpus;
        spec.memory_nodes = place.numa_nodes;
    }
    spec.environment = worker_environment(command.environment, identity);
    spec.stdout_fd = pipes.stdout_fd.get();
    spec.stderr_fd = pipes.stderr_fd.get();
    return spec;
}

WorkerIdentity WorkerGroup::identity_of(const Assignment& assignment,
                                        std::uint32_t local_rank) const {
    WorkerIdentity identity;
    identity.job = options_.job;
    identity.assignment = assignment;
    identity.relay = relay_;
    identity.role = options_.role;
    identity.local_rank = local_rank;
    identity.local_world_size = options_.workers;
    identity.max_restarts = options_.max_restarts;
    identity.signals_to_handle = options_.command.signals_to_handle;
    identity.network_interface = network_interface_;
    identity.watchdog_file = options_.command.watchdog_file;
    identity.virtual_local_rank = options_.command.virtual_local_rank;
    if (!options_.command.visible_devices.empty()) {
        identity.visible_devices = options_.command.visible_devices.at(local_rank);
    }
    if (options_.command.sets_threads) {
        identity.threads =
            static_cast<std::uint32_t>(options_.command.placements.at(local_rank).thread_count);
    }
    return identity;
}

// Ignores errors: opening the first file in the folder reports them.
void WorkerGroup::make_folder(const std::filesystem::path& folder) {
    if (!folder.empty() && folder != made_folder_) {
        static_cast<void>(files::make_own_folder(folder));
        made_folder_ = folder;
    }
}

void WorkerGroup::not_started(std::uint64_t key, const Failure& why) {
    const Process& process = processes_.at(key);
    WorkerFailure failure = failure_of(process);
    failure.start_error = why.detail;
    const WorkerExited exited{process.launched_in, process.local_rank, std::move(failure)};
    if (link_) {
        link_->forget(key);
    }
    processes_.erase(key);
    on_event_(exited);
}

// ---- Ending.

void WorkerGroup::end_by(int signal, const std::vector<std::uint32_t>& local_ranks) {
    for (const std::uint32_t local_rank : local_ranks) {
        if (const std::uint64_t key = living(local_rank); key != 0) {
            Process& process = processes_.at(key);
            process.asked = true;
            process.forced = process.forced || signal == SIGKILL;
            this->signal(key, signal);
        }
    }
    look_soon();
}

void WorkerGroup::signal(std::uint64_t key, int signal) {
    Process& process = processes_.at(key);
    if (process.child) {
        process.child->signal_group(signal);
        // A stopped process cannot answer SIGTERM.
        process.child->signal_group(SIGCONT);
    } else {
        fork_server_->cancel(*process.launch);
        tell_end(key, ExitStatus::signalled(signal, false));
        processes_.erase(key);
    }
}

void WorkerGroup::kill(std::uint32_t local_rank, const std::string& reason, bool by_silence) {
    if (const std::uint64_t key = living(local_rank); key != 0) {
        processes_.at(key).hung = reason;
        processes_.at(key).hung_by_silence = by_silence;
        signal(key, SIGKILL);
    }
}

void WorkerGroup::reaped(std::uint64_t key, ExitStatus status) {
    Process& process = processes_.at(key);
    const bool told_before = process.told;
    const bool others_stay = process.elastic || told_before;
    std::set<pid_t> spared = launcher_.children();  // Its peers, and tools that inspect them.
    spared.erase(process.child->pid());
    const bool any_living =
        std::any_of(processes_.begin(), processes_.end(),
                    [&](const auto& other) { return other.first != key && !other.second.told; });
    // Processes that a worker left behind must be gone before the next round. If its peers end too,
    // they may still need them until the last one has ended.
    if (others_stay || !any_living) {
        if (others_stay) {
            process.child->signal_group(SIGKILL);
        }
        sweep(spared);
    }
    if (!told_before) {
        tell_end(key, status);
    }
    processes_.erase(key);
}

void WorkerGroup::marked_dead(std::uint64_t key) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.told) {
        return;
    }
    found->second.looks = kLooksMax;
    look_at(key);
    look_soon();
}

void WorkerGroup::look_soon() {
    look_interval_ = kLookFirst;
    look_again();
}

void WorkerGroup::look_again() {
    const bool wanted = std::any_of(processes_.begin(), processes_.end(), [](const auto& p) {
        return !p.second.told && (p.second.asked || p.second.looks > 0);
    });
    if (!wanted) {
        look_timer_.cancel();
        return;
    }
    look_timer_.expires_after(look_interval_);
    look_timer_.async_wait([this](const boost::system::error_code& error) {
        if (error) {
            return;
        }
        std::vector<std::uint64_t> keys;
        for (auto& [key, process] : processes_) {
            if (!process.told && (process.asked || process.looks > 0)) {
                process.looks = std::max(0, process.looks - 1);
                keys.push_back(key);
            }
        }
        for (const std::uint64_t key : keys) {
            look_at(key);
        }
        look_interval_ = std::min(look_interval_ * 2, kLookLongest);
        look_again();
    });
}

void WorkerGroup::look_at(std::uint64_t key) {
    const auto found = processes_.find(key);
    if (found == processes_.end() || found->second.told || !found->second.child) {
        return;
    }
    const pid_t pid = found->second.child->pid();
    const std::optional<ExitStatus> status = read_exit(pid);
    // A worker without a link is not fenced: all its threads must have stopped.
    if (status && (found->second.looks > 0 || runs_no_more(pid))) {
        // Else the rest of its process group would live until the worker is reaped.
        found->second.child->signal_group(SIGKILL);
        tell_end(key, *status);
    }
}

void WorkerGroup::tell_end(std::uint64_t key, ExitStatus status) {
    if (link_) {
        link_->hear_out(key);  // Its last message may have the reason.
    }
    Process& process = processes_.at(key);
    process.told = true;
    open_files_now();
    output_.drain(process.local_rank);
    const bool finished = process.page && (*process.page)->finished.load() != 0;
    WorkerExited exited{process.launched_in, process.local_rank, {}, finished};
    exited.step = process.page ? (*process.page)->step.load() : 0;
    if (!status.success()) {
        exited.failure = failure_of(process, status);
    } else if (process.elastic && !finished) {
        exited.unfinished = failure_of(process, ExitStatus::exited(1));
        exited.unfinished->unfinished = true;
    }
    record(status.success() ? WorkerEvent::State::succeeded
           : process.asked  ? WorkerEvent::State::terminated
                            : WorkerEvent::State::failed,
           process, status.signal != 0 ? -status.signal : status.exit_code);
    if (deaths_) {
        deaths_->remove(key);
    }
    if (link_) {
        link_->forget(key);
    }
    on_event_(exited);
}

void WorkerGroup::kill_leftovers() {
    if (fork_server_) {
        fork_server_->stop();  // It may be our caller.
    }
    sweep({});
}

void WorkerGroup::sweep(const std::set<pid_t>& spared) {
    const TreeKill result =
        kill_descendants(clock_, after(clock_.now(), kTreeLimit), launcher_.children(), spared);
    if (!result.survivors.empty()) {
        output_.say("cannot end " + describe(result.survivors) + ", left behind by a worker");
    }
}

WorkerFailure WorkerGroup::failure_of(const Process& process, ExitStatus status) {
    WorkerFailure failure = failure_of(process);
    failure.exit_code = status.exit_code;
    failure.signal = status.signal;
    failure.core_dumped = status.core_dumped;
    if (!process.hung.empty()) {
        failure.kind = rendezvous::FailureKind::hang;
        failure.evidence = process.hung;
        failure.by_silence = process.hung_by_silence;
    } else if (process.fatal) {
        add_own_words(process, failure);
    }
    if (status.signal == SIGKILL && !process.forced && process.hung.empty() && oom_watch_ &&
        process.child) {
        failure.evidence = oom_watch_->evidence(process.child->pid());
    }
    return failure;
}

WorkerFailure WorkerGroup::failure_of(const Process& process) {
    WorkerFailure result;
    result.rank = process.assignment.first_rank + process.local_rank;
    result.local_rank = process.local_rank;
    result.node = options_.node;
    result.host = options_.full_host;
    result.time = wall_clock_time();
    result.last_output = output_.last_output(process.local_rank);
    result.log_file = output_.last_output_file(process.local_rank);
    read_error_file(process.error_file, result);
    if (process.child) {
        result.pid = process.child->pid();
    }
    return result;
}

void WorkerGroup::record(WorkerEvent::State state, const Process& process, int exit_code) const {
    if (options_.on_event && process.child) {
        options_.on_event(WorkerEvent{state, process.assignment, process.local_rank,
                                      process.child->pid(), exit_code});
    }
}

}  // namespace regroup::agent
