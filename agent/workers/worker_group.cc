// SPDX-License-Identifier: Apache-2.0
//
// How a WorkerGroup starts processes. worker_group_end.cc has their ends, worker_group_talk.cc the
// messages to and from workers.
#include "agent/workers/worker_group.h"

#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include "agent/link/round_key.h"
#include "agent/output/template_text.h"
#include "agent/workers/worker_environment.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/net/route.h"

namespace regroup::agent {

WorkerGroup::WorkerGroup(boost::asio::io_context& io, const Clock& clock, OutputRelay& output,
                         const AgentConfig& config, WorkerGroupOptions options,
                         std::function<void(const AgentEvent&)> on_event)
    : io_(io),
      clock_(clock),
      output_(output),
      config_(config),
      options_(std::move(options)),
      on_event_(std::move(on_event)),
      no_input_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
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
    const WorkerOutput plan =
        plan_output(options_.output, identity, config_.offer.name, options_.host);
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
    } else if (!plan.reads_stdin && !no_input_) {
        not_started(key, Failure(Errc::system, "cannot open /dev/null for its standard input"));
    } else if (ProcessSpec spec = spec_of(identity, *pipes, plan.reads_stdin);
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

ProcessSpec WorkerGroup::spec_of(const WorkerIdentity& identity, const OutputRelay::Pipes& pipes,
                                 bool reads_stdin) const {
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
    spec.stdin_fd = reads_stdin ? -1 : no_input_.get();
    spec.stdout_fd = pipes.stdout_fd.get();
    spec.stderr_fd = pipes.stderr_fd.get();
    return spec;
}

WorkerIdentity WorkerGroup::identity_of(const Assignment& assignment,
                                        std::uint32_t local_rank) const {
    WorkerIdentity identity;
    identity.job = config_.job;
    identity.assignment = assignment;
    identity.relay = relay_;
    identity.role = config_.offer.role;
    identity.local_rank = local_rank;
    identity.local_world_size = config_.offer.workers;
    identity.max_restarts = config_.policy.restarts_max;
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
    failure.may_start_later = why.code == Errc::overloaded;
    const WorkerExited exited{process.launched_in, process.local_rank, std::move(failure)};
    if (link_) {
        link_->forget(key);
    }
    processes_.erase(key);
    on_event_(exited);
}

}  // namespace regroup::agent
