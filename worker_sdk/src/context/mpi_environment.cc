// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/context/mpi_environment.h"

#include <regroup/error.h>

#include <algorithm>
#include <fstream>
#include <unistd.h>

#include "rendezvous/base/text.h"
#include "worker_sdk/src/base/checksum.h"

namespace regroup {
namespace {

/// The number of ancestors that are examined; wrappers are not nested deeper.
constexpr int kAncestorsMax = 16;

std::uint32_t number(const Variables& variable, const char* name, const std::string& launcher) {
    const auto text = variable(name);
    if (!text) {
        throw Error(Errc::invalid_argument,
                    "started by " + launcher + ", but " + name +
                        " is not set; set RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT instead");
    }
    const auto value = parse_number<std::uint32_t>(*text);
    if (!value) {
        throw Error(Errc::invalid_argument,
                    std::string(name) + "=\"" + *text + "\" is not a number");
    }
    return *value;
}

/// Computes the node's number, which Open MPI and Hydra do not give, for ranks that are numbered
/// node by node on equal nodes, the default of both. For other numberings at least one rank detects
/// it here.
void guess_node(MpiProcess& process) {
    const std::uint32_t first = process.rank - std::min(process.rank, process.local_rank);
    const std::uint32_t each = std::max(process.local_world_size, 1U);
    if (process.world_size % each == 0 && first % each == 0) {
        process.group_rank = first / each;
        process.group_world_size = process.world_size / each;
    }
}

MpiProcess from_open_mpi(const Variables& variable) {
    MpiProcess process{.launcher = "Open MPI"};
    process.rank = number(variable, "OMPI_COMM_WORLD_RANK", process.launcher);
    process.world_size = number(variable, "OMPI_COMM_WORLD_SIZE", process.launcher);
    process.local_rank = number(variable, "OMPI_COMM_WORLD_LOCAL_RANK", process.launcher);
    process.local_world_size = number(variable, "OMPI_COMM_WORLD_LOCAL_SIZE", process.launcher);
    guess_node(process);
    for (const char* name : {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid"}) {
        if (const auto job = variable(name); job && process.job.empty()) {
            process.job = "openmpi-" + *job;
        }
    }
    return process;
}

/// The name and the parent of a process; 0 if it has no visible parent.
pid_t parent_of(pid_t pid, std::string& name) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(file, line);
    const std::size_t open = line.find('(');
    const std::size_t close = line.rfind(')');
    if (open == std::string::npos || close == std::string::npos || close + 4 > line.size()) {
        return 0;
    }
    name = line.substr(open + 1, close - open - 1);
    const std::string_view rest = std::string_view(line).substr(close + 4);  // Behind the state.
    return parse_number<pid_t>(rest.substr(0, rest.find(' '))).value_or(0);
}

/// Hydra names no job, but on one node all ranks descend from the same proxy, perhaps through
/// shells.
std::string hydra_job() {
    pid_t pid = ::getppid();
    for (int i = 0; i < kAncestorsMax && pid > 1; ++i) {
        std::string name;
        const pid_t parent = parent_of(pid, name);
        if (name.starts_with("hydra_pmi_proxy")) {
            return "hydra-" + std::to_string(pid);
        }
        pid = parent;
    }
    return "";
}

MpiProcess from_hydra(const Variables& variable) {
    MpiProcess process{.launcher = "Hydra"};
    process.rank = number(variable, "PMI_RANK", process.launcher);
    process.world_size = number(variable, "PMI_SIZE", process.launcher);
    process.local_rank = number(variable, "MPI_LOCALRANKID", process.launcher);
    process.local_world_size = number(variable, "MPI_LOCALNRANKS", process.launcher);
    guess_node(process);
    if (process.on_one_node()) {
        process.job = hydra_job();
    }
    return process;
}

MpiProcess from_slurm(const Variables& variable) {
    MpiProcess process{.launcher = "Slurm"};
    process.rank = number(variable, "SLURM_PROCID", process.launcher);
    process.world_size = number(variable, "SLURM_STEP_NUM_TASKS", process.launcher);
    process.local_rank = number(variable, "SLURM_LOCALID", process.launcher);
    process.group_rank = number(variable, "SLURM_NODEID", process.launcher);
    process.group_world_size = number(variable, "SLURM_STEP_NUM_NODES", process.launcher);
    const std::string counts = variable("SLURM_STEP_TASKS_PER_NODE").value_or("");
    const auto local_world_size = slurm_count(counts, *process.group_rank);
    if (!local_world_size) {
        throw Error(Errc::invalid_argument, "SLURM_STEP_TASKS_PER_NODE=\"" + counts +
                                                "\" does not tell the tasks of node " +
                                                std::to_string(*process.group_rank));
    }
    process.local_world_size = *local_world_size;
    process.job = "slurm-" + variable("SLURM_JOB_ID").value_or("") + "." +
                  variable("SLURM_STEP_ID").value_or("");
    // A requeued job keeps its id, and the ids of its steps begin anew.
    if (const auto restarts = variable("SLURM_RESTART_COUNT").value_or("0"); restarts != "0") {
        process.job += "-restart" + restarts;
    }
    process.first_host = first_host_of(variable("SLURM_STEP_NODELIST").value_or(""));
    return process;
}

}  // namespace

std::optional<MpiProcess> find_mpi_process(const Variables& variable) {
    if (variable("OMPI_COMM_WORLD_RANK")) {
        return from_open_mpi(variable);
    }
    if (variable("PMI_RANK") && variable("MPI_LOCALRANKID")) {
        return from_hydra(variable);
    }
    // A batch script has SLURM_PROCID too, but is no step of several tasks.
    if (variable("SLURM_PROCID") && variable("SLURM_STEP_NUM_TASKS")) {
        return from_slurm(variable);
    }
    return std::nullopt;
}

std::uint16_t port_of_job(std::string_view job) {
    constexpr std::uint32_t kFirst = 20000;
    constexpr std::uint32_t kCount = 12000;
    return static_cast<std::uint16_t>(kFirst + checksum(job) % kCount);
}

std::string first_host_of(std::string_view list) {
    std::string host;
    for (std::size_t at = 0; at < list.size() && list[at] != ','; ++at) {
        if (list[at] != '[') {
            host += list[at];
            continue;
        }
        const std::size_t close = std::min(list.find(']', at), list.size());
        const std::string_view numbers = list.substr(at + 1, close - at - 1);
        host += numbers.substr(0, numbers.find_first_of(",-"));
        at = close;
    }
    return host;
}

std::optional<std::uint32_t> slurm_count(std::string_view counts, std::uint32_t index) {
    for (std::size_t at = 0; at < counts.size();) {
        const std::size_t end = std::min(counts.find(',', at), counts.size());
        const std::string_view entry = counts.substr(at, end - at);
        const std::size_t times = entry.find("(x");
        const auto count = parse_number<std::uint32_t>(entry.substr(0, times));
        const auto nodes =
            times == entry.npos || !entry.ends_with(')')
                ? std::optional(1U)
                : parse_number<std::uint32_t>(entry.substr(times + 2, entry.size() - times - 3));
        if (!count || !nodes) {
            return std::nullopt;
        }
        if (index < *nodes) {
            return count;
        }
        index -= *nodes;
        at = end + 1;
    }
    return std::nullopt;
}

}  // namespace regroup
