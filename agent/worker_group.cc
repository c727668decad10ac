// SPDX-License-Identifier: Apache-2.0
#include "agent/worker_group.h"

#include <csignal>
#include <ctime>
#include <unistd.h>
#include <utility>

#include "agent/error_file.h"
#include "agent/process/process_tree.h"
#include "agent/template_text.h"
#include "agent/worker_environment.h"
#include "rendezvous/net/route.h"

namespace regroup::agent {

namespace {

// How long descendants that left their group may resist SIGKILL before the round is given over.
constexpr Duration kTreeLimit = std::chrono::seconds(5);

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
                         std::function<void(const WorkerExited&)> on_exit)
    : clock_(clock),
      output_(output),
      options_(std::move(options)),
      on_exit_(std::move(on_exit)),
      launcher_(io),
      reaper_(io, launcher_) {}

// ---- Starting.

void WorkerGroup::launch(const Assignment& assignment, const std::string& own_address) {
    output_.close_all();
    children_.clear();
    asked_ = false;
    forced_ = false;
    // Gloo looks for its address behind the host's name, and falls back to loopback.
    network_interface_.clear();
    for (const std::string& address : {assignment.master_addr, own_address}) {
        if (assignment.group_world_size > 1 && network_interface_.empty()) {
            network_interface_ = net::interface_towards(address);
        }
    }
    for (std::uint32_t i = 0; i < options_.workers; ++i) {
        start(assignment, i);
    }
    // What can wait until they run.
    oom_watch_.emplace();
    output_.open_files();
}

void WorkerGroup::start(const Assignment& assignment, std::uint32_t local_rank) {
    WorkerIdentity identity = identity_of(assignment, local_rank);
    const WorkerOutput plan = plan_output(options_.output, identity, options_.node, options_.host);
    make_folder(worker_folder(options_.output, identity));
    error_files_[local_rank] = identity.error_file = plan.error_file;
    if (!plan.error_file.empty()) {
        ::unlink(plan.error_file.c_str());  // An earlier run's error would be taken for ours.
    }
    const Result<OutputRelay::Pipes> pipes = output_.open(local_rank, plan.out, plan.err);
    if (!pipes) {
        not_started(assignment, local_rank, pipes.error());
        return;
    }
    Result<ChildProcess> child = launcher_.launch(spec_of(identity, *pipes));
    if (!child) {
        not_started(assignment, local_rank, child.error());
        return;
    }
    ChildProcess& running = children_.emplace(local_rank, std::move(*child)).first->second;
    running.async_wait([this, assignment, local_rank](ExitStatus status) {
        exited(assignment, local_rank, status);
    });
    record(WorkerEvent::State::started, assignment, local_rank, running.pid(), 0);
}

ProcessSpec WorkerGroup::spec_of(const WorkerIdentity& identity,
                                 const OutputRelay::Pipes& pipes) const {
    const WorkerCommand& command = options_.command;
    ProcessSpec spec;
    spec.executable = command.executable;
    spec.arguments = command.arguments;
    for (std::size_t i = command.templates_begin; i < spec.arguments.size(); ++i) {
        spec.arguments[i] =
            substitute(spec.arguments[i], {{"local_rank", std::to_string(identity.local_rank)}});
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

// A folder that cannot be made shows when the first file is opened in it.
void WorkerGroup::make_folder(const std::filesystem::path& folder) {
    if (!folder.empty() && folder != made_folder_) {
        std::error_code ignored;
        std::filesystem::create_directories(folder, ignored);
        made_folder_ = folder;
    }
}

void WorkerGroup::not_started(const Assignment& assignment, std::uint32_t local_rank,
                              const Failure& why) {
    WorkerFailure failure = failure_of(assignment, local_rank);
    failure.start_error = why.detail;
    on_exit_(WorkerExited{assignment.round, local_rank, std::move(failure)});
}

// ---- Ending.

void WorkerGroup::end_by(int signal) {
    asked_ = true;
    forced_ = forced_ || signal == SIGKILL;
    for (auto& [local_rank, child] : children_) {
        child.signal_group(signal);
        // A stopped process cannot answer SIGTERM.
        child.signal_group(SIGCONT);
    }
}

void WorkerGroup::forward(int signal) {
    for (auto& [local_rank, child] : children_) {
        child.signal_group(signal);
    }
}

void WorkerGroup::exited(const Assignment& assignment, std::uint32_t local_rank,
                         ExitStatus status) {
    output_.drain(local_rank);
    const pid_t pid = children_.at(local_rank).pid();
    std::optional<WorkerFailure> failure;
    if (!status.success()) {
        failure = failure_of(assignment, local_rank);
        failure->exit_code = status.exit_code;
        failure->signal = status.signal;
        failure->core_dumped = status.core_dumped;
        if (status.signal == SIGKILL && !forced_ && oom_watch_) {
            failure->evidence = oom_watch_->evidence(pid);
        }
    }
    record(status.success() ? WorkerEvent::State::succeeded
           : asked_         ? WorkerEvent::State::terminated
                            : WorkerEvent::State::failed,
           assignment, local_rank, pid, status.signal != 0 ? -status.signal : status.exit_code);
    children_.erase(local_rank);
    if (children_.empty()) {
        // Whatever the workers left behind must be gone before the next round may begin.
        kill_leftovers();
    }
    on_exit_(WorkerExited{assignment.round, local_rank, std::move(failure)});
}

void WorkerGroup::kill_leftovers() {
    const TreeKill result =
        kill_descendants(clock_, after(clock_.now(), kTreeLimit), launcher_.children());
    if (!result.survivors.empty()) {
        output_.say("cannot end " + describe(result.survivors) + ", left behind by a worker");
    }
}

WorkerFailure WorkerGroup::failure_of(const Assignment& assignment, std::uint32_t local_rank) {
    WorkerFailure result;
    result.rank = assignment.first_rank + local_rank;
    result.local_rank = local_rank;
    result.node = options_.node;
    result.host = options_.full_host;
    result.time = wall_clock_time();
    result.last_output = output_.last_output(local_rank);
    result.log_file = output_.last_output_file(local_rank);
    read_error_file(error_files_[local_rank], result);
    if (const auto child = children_.find(local_rank); child != children_.end()) {
        result.pid = child->second.pid();
    }
    return result;
}

void WorkerGroup::record(WorkerEvent::State state, const Assignment& assignment,
                         std::uint32_t local_rank, pid_t pid, int exit_code) const {
    if (options_.on_event) {
        options_.on_event(WorkerEvent{state, assignment, local_rank, pid, exit_code});
    }
}

}  // namespace regroup::agent
