// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/worker_starter.h"

#include <algorithm>
#include <fcntl.h>
#include <memory>
#include <unistd.h>
#include <utility>

#include "agent/output/template_text.h"
#include "agent/process/proc_files.h"
#include "agent/text/progress_text.h"
#include "agent/workers/worker_environment.h"
#include "rendezvous/base/text.h"
#include "rendezvous/cgroup/cgroup.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/net/route.h"

namespace regroup::agent {

namespace {

/// The first output opens the file of a worker. After this time a silent worker gets empty files.
constexpr Duration kFilesPause = std::chrono::milliseconds(20);
/// A fork server with PyTorch and its compiler takes about 1 GiB. It is prepared only if so much is
/// left.
constexpr std::uint64_t kPrepareMemory = std::uint64_t{4} << 30U;

}  // namespace

WorkerStarter::WorkerStarter(boost::asio::io_context& io, const Clock& clock,
                             LinuxLauncher& launcher, OutputRelay& output,
                             const AgentConfig& config, const WorkerGroupOptions& options,
                             OnStarted on_started)
    : io_(io),
      launcher_(launcher),
      output_(output),
      config_(config),
      options_(options),
      on_started_(std::move(on_started)),
      no_input_(::open("/dev/null", O_RDONLY | O_CLOEXEC)),
      starts_(io, clock,
              {.shows_sign = [this] { return shows_sign(); },
               .on_slow =
                   [this](Duration taken, pid_t pid) {
                       output_.say(slow_start_text(taken, maps_file(pid, "/libtorch")));
                   }}),
      files_timer_(io) {
    const WorkerCommand& command = options_.command;
    if (!command.python_program_begin || !command.preload.empty() || !command.prepares ||
        !options_.has_store_clients) {
        starts_.end();
    }
}

bool WorkerStarter::shows_sign() const {
    const auto bytes = output_.bytes(config_.offer.workers);
    return options_.has_store_clients() ||
           (bytes && std::any_of(bytes->begin(), bytes->end(), [](auto n) { return n > 0; }));
}

void WorkerStarter::start_fork_server() {
    if (!options_.command.preload.empty()) {
        open_fork_server(options_.command.preload, false);
    }
}

void WorkerStarter::prepare_fork_server(const std::string& modules) {
    const WorkerCommand& command = options_.command;
    if (fork_server_ || !command.prepares || !command.python_program_begin || modules.empty() ||
        cgroup::node_memory_left() < kPrepareMemory) {
        return;
    }
    std::vector<std::string> names;
    for (const std::string_view name : split(modules, ',')) {
        names.emplace_back(name);
    }
    open_fork_server(std::move(names), true);
}

void WorkerStarter::open_fork_server(std::vector<std::string> modules, bool in_background) {
    const WorkerCommand& command = options_.command;
    const auto program =
        command.arguments.begin() + static_cast<std::ptrdiff_t>(*command.python_program_begin);
    ForkServerOptions options;
    options.interpreter = command.executable;
    options.options.assign(command.arguments.begin(), program);
    options.program.assign(program, command.arguments.end());
    options.modules = std::move(modules);
    options.in_background = in_background;
    options.environment = command.environment;
    fork_server_.emplace(io_, launcher_, std::move(options), output_.sayer());
    fork_server_->start();
}

void WorkerStarter::stop_fork_server() {
    if (fork_server_) {
        fork_server_->stop();  // It may be our caller.
    }
}

// Without a chosen interface, Gloo resolves the host name and may fall back to loopback.
void WorkerStarter::choose_interface(const Assignment& assignment, const std::string& own_address) {
    network_interface_.clear();
    for (const std::string& address : {assignment.master_addr, own_address}) {
        if (assignment.group_world_size > 1 && network_interface_.empty() && !address.empty()) {
            network_interface_ = net::interface_towards(address);
        }
    }
}

WorkerIdentity WorkerStarter::identity_of(const Assignment& assignment,
                                          std::uint32_t local_rank) const {
    const WorkerCommand& command = options_.command;
    WorkerIdentity identity;
    identity.place = place_of(assignment, local_rank, relay_);
    identity.place.job = config_.job;
    identity.place.local_world_size = config_.offer.workers;
    identity.place.max_restarts = config_.policy.restarts_max;
    identity.role = config_.offer.role;
    identity.signals_to_handle = command.signals_to_handle;
    identity.network_interface = network_interface_;
    identity.watchdog_file = command.watchdog_file;
    identity.virtual_local_rank = command.virtual_local_rank;
    if (!command.visible_devices.empty()) {
        identity.visible_devices = command.visible_devices.at(local_rank);
    }
    if (command.sets_threads) {
        identity.threads =
            static_cast<std::uint32_t>(command.placements.at(local_rank).thread_count);
    }
    return identity;
}

WorkerOutput WorkerStarter::output_of(const WorkerIdentity& worker) const {
    return plan_output(options_.output, worker, config_.offer.name, options_.host);
}

void WorkerStarter::start(std::uint64_t key, const WorkerIdentity& worker,
                          const WorkerOutput& plan) {
    make_folder(worker_folder(options_.output, worker));
    if (!plan.error_file.empty()) {
        ::unlink(plan.error_file.c_str());  // Remove the file of an earlier run.
    }
    Result<OutputRelay::Pipes> pipes = output_.open(worker.place.local_rank, plan.out, plan.err);
    if (!pipes) {
        on_started_(key, pipes.error());
    } else if (!plan.reads_stdin && !no_input_) {
        on_started_(key, Failure(Errc::system, "cannot open /dev/null for its standard input"));
    } else if (ProcessSpec spec = spec_of(worker, *pipes, plan.reads_stdin);
               fork_server_ && fork_server_->serves()) {
        fork(key, std::move(spec), std::move(*pipes));
    } else {
        Result<ChildProcess> child = launcher_.launch(spec);
        if (child) {
            starts_.started(worker.place.local_rank, child->pid());
        }
        on_started_(key, std::move(child));
    }
}

void WorkerStarter::fork(std::uint64_t key, ProcessSpec spec, OutputRelay::Pipes pipes) {
    // Kept for a start without the fork server.
    auto kept = std::make_shared<std::pair<ProcessSpec, OutputRelay::Pipes>>(std::move(spec),
                                                                             std::move(pipes));
    fork_server_->launch(key, kept->first, *options_.command.python_program_begin,
                         [this, key, kept](Result<ChildProcess> child) {
                             on_started_(key,
                                         child ? std::move(child) : launcher_.launch(kept->first));
                         });
}

void WorkerStarter::cancel(std::uint64_t key) {
    if (fork_server_) {
        fork_server_->cancel(key);
    }
}

ProcessSpec WorkerStarter::spec_of(const WorkerIdentity& worker, const OutputRelay::Pipes& pipes,
                                   bool reads_stdin) const {
    const WorkerCommand& command = options_.command;
    ProcessSpec spec;
    spec.executable = command.executable;
    spec.arguments = command.arguments;
    const std::map<std::string, std::string> values{
        {"local_rank", std::to_string(worker.place.local_rank)}};
    for (std::size_t i = command.templates_begin; i < spec.arguments.size(); ++i) {
        std::string& argument = spec.arguments[i];
        argument = command.templates_of_torchrun ? substitute(argument, values)
                                                 : substitute_braced(argument, values);
    }
    if (worker.place.local_rank < command.placements.size()) {
        const RankPlacement& place = command.placements[worker.place.local_rank];
        spec.cpus = place.cpus;
        spec.memory_nodes = place.numa_nodes;
    }
    spec.environment = worker_environment(command.environment, worker);
    spec.stdin_fd = reads_stdin ? -1 : no_input_.get();
    spec.stdout_fd = pipes.stdout_fd.get();
    spec.stderr_fd = pipes.stderr_fd.get();
    return spec;
}

// Ignores errors: opening the first file in the folder reports them.
void WorkerStarter::make_folder(const std::filesystem::path& folder) {
    if (!folder.empty() && folder != made_folder_) {
        static_cast<void>(files::make_own_folder(folder));
        made_folder_ = folder;
    }
}

void WorkerStarter::open_files_soon() {
    files_wanted_ = true;
    files_timer_.expires_after(kFilesPause);
    files_timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            open_files_now();
        }
    });
}

void WorkerStarter::open_files_now() {
    if (std::exchange(files_wanted_, false)) {
        output_.open_files();
    }
}

}  // namespace regroup::agent
