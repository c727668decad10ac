// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_plan.h"

#include <cerrno>
#include <ctime>
#include <unistd.h>
#include <utility>

#include "launcher/host.h"
#include "launcher/output_plan.h"
#include "launcher/rendezvous_plan.h"
#include "launcher/worker_command.h"
#include "rendezvous/base/text.h"
#include "rendezvous/files/own_file.h"
#include "rendezvous/security/key.h"

namespace regroup::launcher {

namespace {

namespace fs = std::filesystem;

std::string hex(std::uint32_t number) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", number);
    return text;
}

std::string random_hex() {
    return hex(static_cast<std::uint32_t>(security::random_number()));
}

// Equal for equal commands, and short. Arguments may hold secrets, so no peer gets them.
std::string digest_of_command(const ProgramFlags& flags) {
    std::string command = "the command of a node's workers";
    for (const std::string& word : {std::string(flags.module ? "-m" : ""), flags.program}) {
        command += '\0' + word;
    }
    for (const std::string& word : flags.arguments) {
        command += '\0' + word;
    }
    return security::Key::from_secret(command)->hex().substr(0, 32);
}

// A stream or filter for a local rank that does not exist would be ignored silently.
Result<void> check_local_ranks(const agent::OutputOptions& output, std::uint32_t workers) {
    const auto check = [&](const char* flag, std::uint32_t local_rank) -> Result<void> {
        return local_rank < workers
                   ? Result<void>()
                   : invalid_argument(std::string(flag) + " names local rank " +
                                      std::to_string(local_rank) + "; this node has " +
                                      std::to_string(workers) + " worker(s), the last is " +
                                      std::to_string(workers - 1));
    };
    // The largest local rank is the first to be too large.
    Result<void> result;
    for (const auto& [flag, spec] :
         {std::pair("--redirects", &output.redirects), std::pair("--tee", &output.tee)}) {
        if (result && !spec->by_local_rank.empty()) {
            result = check(flag, spec->by_local_rank.rbegin()->first);
        }
    }
    if (result && output.console_ranks && !output.console_ranks->empty()) {
        result = check("--local-ranks-filter", *output.console_ranks->rbegin());
    }
    return result;
}

void name_node(const RunFlags& flags, std::uint32_t workers, agent::AgentConfig& core) {
    rendezvous::Offer& offer = core.offer;
    const std::optional<Allocation>& allocation = flags.rendezvous.allocation;
    offer.name = allocation && !allocation->node_name.empty() ? allocation->node_name
                 : offer.address.empty()                      ? short_host_name()
                                                              : offer.address;
    offer.workers = workers;
    offer.secret = security::random_text();
    offer.store_key = security::random_text();
    offer.command = digest_of_command(flags.program);
    offer.reads_logs = true;
    core.node = offer.name + "-" + std::to_string(::getpid()) + "-" + random_hex();
    core.policy.program = fs::path(flags.program.program).filename();
}

void note_unused_conf(const RendezvousFlags& flags, std::vector<std::string>& notes) {
    std::string keys;
    for (const std::string& key : flags.unused_conf) {
        keys += (keys.empty() ? "" : ", ") + key;
    }
    if (!keys.empty()) {
        notes.push_back("--rdzv-conf: not used here: " + keys);
    }
}

/// The needs of the workers and of this node, to be healthy.
health::Needs needs_of(const RunFlags& flags, const agent::AgentConfig& core) {
    health::Needs needs;
    needs.workers = core.offer.workers;
    needs.ranks = std::uint64_t{core.offer.workers} * core.policy.nodes_min;
    const std::uint32_t each = flags.placement.gpus_per_rank.value_or(0);
    const bool one_each = flags.workers == "gpu" || (flags.workers == "auto" && count_gpus() > 0);
    needs.gpus = each > 0 ? core.offer.workers * each : one_each ? core.offer.workers : 0;
    needs.visible_gpus = variable("CUDA_VISIBLE_DEVICES");
    needs.gpu_order = variable("CUDA_DEVICE_ORDER");
    return needs;
}

// As in torchrun, the environment asks for the watchdog, and may give the path of its FIFO. Empty:
// none is wanted.
std::string watchdog_file(const std::string& node) {
    if (variable("TORCHELASTIC_ENABLE_FILE_TIMER") != "1") {
        return "";
    }
    const std::string given = variable("TORCHELASTIC_TIMER_FILE").value_or("");
    std::error_code error;
    const fs::path folder = fs::temp_directory_path(error);
    return !given.empty() ? given : error ? "" : (folder / ("watchdog_timer_" + node)).string();
}

// A folder that cannot be used must not show at the end of the training.
Result<void> plan_snapshots(agent::AgentOptions& agent) {
    fs::path& folder = agent.snapshots.folder;
    if (folder.empty()) {
        return {};
    }
    std::error_code error;
    folder = fs::absolute(folder, error).lexically_normal();
    Result<void> made = files::make_own_folder(folder.string());
    if (made && ::access(folder.c_str(), W_OK | X_OK) != 0) {
        made = system_failure("write", errno);
    }
    if (!made) {
        return invalid_argument("--snapshot-dir " + folder.string() +
                                " cannot be used: " + made.error().detail);
    }
    std::vector<std::string>& environment = agent.group.command.environment;
    const std::string variable = "REGROUP_SNAPSHOT_DIR=";
    std::erase_if(environment,
                  [&](const std::string& entry) { return entry.starts_with(variable); });
    environment.push_back(variable + folder.string());
    return {};
}

// 0: successors of workers do not wait for the memory of GPUs.
Result<Duration> gpu_memory_limit(Duration otherwise) {
    constexpr const char* kGpuMemoryTimeout = "REGROUP_GPU_MEMORY_TIMEOUT";
    const std::optional<std::string> text = variable(kGpuMemoryTimeout);
    const auto seconds = parse_number<std::uint16_t>(text.value_or("0"));
    if (!seconds) {
        return invalid_argument(std::string(kGpuMemoryTimeout) + "='" + *text +
                                "' is no whole number of seconds from 0 to 65535");
    }
    return text ? Duration(std::chrono::seconds(*seconds)) : otherwise;
}

// The needs of the agent's parts beside the flags.
Result<void> plan_parts(const RunFlags& flags, RunPlan& plan) {
    agent::AgentOptions& agent = plan.agent;
    Result<agent::WorkerCommand> command =
        make_worker_command(flags, agent.core.offer.workers, plan.notes);
    if (!command) {
        return command.error();
    }
    agent.group.command = *std::move(command);
    agent.group.command.watchdog_file = watchdog_file(agent.core.node);
    agent.group.host = short_host_name();
    agent.group.full_host = full_host_name();
    Result<OutputPlan> output = make_output_plan(flags, agent.core.job, plan.notes);
    if (!output) {
        return output.error();
    }
    agent.group.output = std::move(output->options);
    plan.temporary_folder = std::move(output->temporary);
    agent.watch.folder = agent.group.output.folder;
    agent.watch.search_path = variable("PATH").value_or("");
    // Folders in torchrun's layout have only torchrun's files, for tools that read them.
    agent.watch.keeps_ledger = agent.group.output.layout != agent::OutputLayout::torchrun;
    agent.watch.torch_pipe = torch_pipe();
    agent.health.needs = needs_of(flags, agent.core);
    agent.health.log_folder = agent.group.output.folder;
    const Result<Duration> gpu_memory = gpu_memory_limit(agent.group.gpus.limit);
    if (!gpu_memory) {
        return gpu_memory.error();
    }
    agent.group.gpus.limit = *gpu_memory;
    agent.announces = !plan.as_torchrun;
    agent.daemon_remembers = plan.daemon.state.is_directory();
    return plan_snapshots(agent);
}

}  // namespace

std::string fresh_job_id() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
    return std::string(text) + "-" + random_hex().substr(0, 4);
}

Result<RunPlan> make_run_plan(RunFlags flags) {
    RunPlan plan;
    plan.notes = std::move(flags.notes);
    plan.agent = flags.agent;
    plan.daemon.state = flags.state;
    plan.as_torchrun = flags.front == Front::torchrun;
    const ProgramFlags& program = flags.program;
    plan.entry_point = program.run_path ? "run_script_path" : program.program;
    plan.signals = flags.signals;
    plan.probe_port = flags.probe_port;
    plan.event_log = flags.event_log;
    if (flags.console_events) {
        plan.console_events = {program.program, flags.rendezvous.backend};
    }
    const Result<std::uint32_t> workers = count_workers(flags.workers, plan.notes);
    if (!workers) {
        return workers.error();
    }
    if (const std::optional<Allocation>& allocation = flags.rendezvous.allocation) {
        plan.notes.insert(plan.notes.end(), allocation->notes.begin(), allocation->notes.end());
        plan.daemon.other_name = allocation->head;
    }
    note_unused_conf(flags.rendezvous, plan.notes);
    if (!plan.as_torchrun) {
        if (const auto checked = check_local_ranks(flags.agent.group.output, *workers); !checked) {
            return checked.error();
        }
    }
    agent::AgentConfig& core = plan.agent.core;
    name_node(flags, *workers, core);
    if (const Result<void> planned = plan_rendezvous(flags, plan); !planned) {
        return planned.error();
    }
    if (core.job.empty()) {
        core.job = kUsualJob;
    }
    core.offer.same_command_only = core.job == kUsualJob;
    const Result<void> planned = plan_parts(flags, plan);
    return planned ? Result<RunPlan>(std::move(plan)) : planned.error();
}

}  // namespace regroup::launcher
