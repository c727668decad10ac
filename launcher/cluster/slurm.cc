// SPDX-License-Identifier: Apache-2.0
// The allocation of a Slurm step, from the variables of its tasks.
#include <algorithm>
#include <string_view>
#include <utility>

#include "launcher/cluster/allocation.h"
#include "launcher/cluster/host_list.h"
#include "rendezvous/base/text.h"

namespace regroup::launcher {
namespace {

std::string shown(const std::string& name, const std::string& value) {
    constexpr std::size_t kShownMax = 60;
    return name + "=" + value.substr(0, kShownMax) + (value.size() > kShownMax ? "..." : "");
}

Result<std::string> text_of(const Environment& environment, const std::string& name) {
    std::optional<std::string> value = environment(name);
    if (!value || value->empty()) {
        return invalid_argument(
            "this is a task of a Slurm step, but " + name +
            " is not set; pass Slurm's variables on (srun --export=ALL), or say where "
            "the nodes meet: --rdzv-backend=regroup --rdzv-endpoint=HOST:PORT");
    }
    return *std::move(value);
}

Result<std::uint32_t> number_of(const std::string& name, const std::string& value) {
    const auto number = parse_number<std::uint32_t>(value);
    return number ? Result<std::uint32_t>(*number)
                  : invalid_argument(shown(name, value) + " is not a number");
}

Result<std::uint32_t> number_of(const Environment& environment, const std::string& name) {
    const Result<std::string> text = text_of(environment, name);
    return text ? number_of(name, *text) : text.error();
}

// A requeued job keeps its id, and the ids of its steps begin anew.
Result<std::string> name_of_run(const Environment& environment) {
    const Result<std::uint32_t> job = number_of(environment, "SLURM_JOB_ID");
    if (!job) {
        return job.error();
    }
    const Result<std::uint32_t> step = number_of(environment, "SLURM_STEP_ID");
    if (!step) {
        return step.error();
    }
    const std::string name = "slurm-" + std::to_string(*job) + "." + std::to_string(*step);
    const std::string kRestarts = "SLURM_RESTART_COUNT";
    const std::optional<std::string> text = environment(kRestarts);
    const Result<std::uint32_t> restarts = number_of(kRestarts, text.value_or("0"));
    if (!restarts) {
        return restarts.error();
    }
    return *restarts == 0 ? name : name + "-restart" + std::to_string(*restarts);
}

// SLURM_NODE_ALIASES is "NAME:ADDRESS:HOST,..." for nodes in a cloud, whose names no name server
// may know. An IPv6 address has brackets there.
std::string address_of(const Environment& environment, const std::string& node) {
    const std::string aliases = environment("SLURM_NODE_ALIASES").value_or("");
    const std::string begin = node + ":";
    for (std::string_view rest = aliases; !rest.empty();) {
        const std::string_view entry = rest.substr(0, rest.find(','));
        rest.remove_prefix(std::min(rest.size(), entry.size() + 1));
        if (entry.starts_with(begin)) {
            const std::string_view address = entry.substr(begin.size());
            const bool is_ipv6 = address.starts_with('[');
            const std::size_t end = is_ipv6 ? address.find(']') : address.find(':');
            const std::size_t start = is_ipv6 ? 1 : 0;
            if (end != address.npos && end > start) {
                return std::string(address.substr(start, end - start));
            }
        }
    }
    return node;
}

// Without a topology plug-in the address is the node's name alone.
std::string topology_of(const Environment& environment) {
    const std::string pattern = environment("SLURM_TOPOLOGY_ADDR_PATTERN").value_or("");
    return pattern.find('.') == pattern.npos ? "" : environment("SLURM_TOPOLOGY_ADDR").value_or("");
}

// A worker for each GPU of the step on this node; empty if it has none.
Result<std::string> workers_of(const Environment& environment) {
    const std::string kGpus = "SLURM_GPUS_ON_NODE";
    const std::string text = environment(kGpus).value_or("");
    const Result<std::uint32_t> gpus = number_of(kGpus, text.empty() ? "0" : text);
    if (!gpus) {
        return gpus.error();
    }
    return *gpus > 0 ? std::to_string(*gpus) : std::string();
}

// A task alone may be a shell, in which jobs come and go: it gives the workers only.
Result<std::optional<Allocation>> allocation_of_one(const Environment& environment) {
    Allocation allocation;
    allocation.scheduler = "Slurm";
    Result<std::string> workers = workers_of(environment);
    if (!workers) {
        return workers.error();
    }
    allocation.workers = *std::move(workers);
    return std::optional(std::move(allocation));
}

// One launcher starts all workers of its node.
Failure too_many_tasks(std::uint32_t tasks, std::uint32_t nodes) {
    const std::string each = std::to_string(tasks / nodes);
    const std::string count = std::to_string(nodes);
    return invalid_argument(
        "Slurm started " + std::to_string(tasks) + " tasks on " + count +
        (nodes == 1 ? " node" : " nodes") +
        ", and regroup run must be one task on each: srun --nodes=" + count + " --ntasks=" + count +
        " --ntasks-per-node=1 regroup run --nproc-per-node=" + each + " ... starts " + each +
        " workers on each node; if each task is a job of its own, give --standalone");
}

Result<std::vector<std::string>> names_of_nodes(const Environment& environment,
                                                std::uint32_t nodes) {
    const Result<std::string> list = text_of(environment, "SLURM_STEP_NODELIST");
    if (!list) {
        return list.error();
    }
    Result<std::vector<std::string>> names = expand_host_list(*list);
    if (!names) {
        return invalid_argument("SLURM_STEP_NODELIST: " + names.error().detail);
    }
    if (names->size() != nodes) {
        return invalid_argument(shown("SLURM_STEP_NODELIST", *list) + " names " +
                                std::to_string(names->size()) +
                                " nodes, but SLURM_STEP_NUM_NODES is " + std::to_string(nodes));
    }
    std::vector<std::string> sorted = *names;
    std::ranges::sort(sorted);
    if (const auto twice = std::ranges::adjacent_find(sorted); twice != sorted.end()) {
        return invalid_argument(
            "two components of this heterogeneous step are on node " + *twice +
            ", and regroup run must be one task on each node; start it on one component "
            "(srun --het-group=0) or give the components different nodes");
    }
    return names;
}

Result<std::optional<Allocation>> allocation_of(const Environment& environment,
                                                std::uint32_t nodes) {
    Allocation allocation;
    allocation.scheduler = "Slurm";
    allocation.nodes = nodes;
    Result<std::string> job = name_of_run(environment);
    if (!job) {
        return job.error();
    }
    allocation.job = *std::move(job);
    const Result<std::uint32_t> index = number_of(environment, "SLURM_NODEID");
    if (!index) {
        return index.error();
    }
    allocation.index = *index;
    const Result<std::vector<std::string>> names = names_of_nodes(environment, nodes);
    if (!names) {
        return names.error();
    }
    Result<std::string> own = text_of(environment, "SLURMD_NODENAME");
    if (!own) {
        return own.error();
    }
    if (std::ranges::find(*names, *own) == names->end()) {
        return invalid_argument(
            "this node is SLURMD_NODENAME=" + *own +
            ", which is not in SLURM_STEP_NODELIST: the variables are those of another "
            "step; start regroup run by srun");
    }
    // The order of a heterogeneous step's list is not that of SLURM_NODEID, so the name decides.
    allocation.is_head = names->front() == *own;
    allocation.head = address_of(environment, names->front());
    allocation.head_advice = "where Slurm's name of the first node, " + allocation.head +
                             ", is no name of a host, give all nodes its address: "
                             "--rdzv-backend=regroup --rdzv-endpoint=ADDRESS:PORT --nnodes=" +
                             std::to_string(nodes);
    allocation.node_name = *std::move(own);
    Result<std::string> workers = workers_of(environment);
    if (!workers) {
        return workers.error();
    }
    allocation.workers = *std::move(workers);
    allocation.topology = topology_of(environment);
    return std::optional(std::move(allocation));
}

}  // namespace

Result<std::optional<Allocation>> find_slurm_allocation(const Environment& environment) {
    // A batch script has SLURM_PROCID and the like, too, but no step.
    if (!environment("SLURM_STEP_NUM_TASKS")) {
        return std::optional<Allocation>();
    }
    const Result<std::uint32_t> tasks = number_of(environment, "SLURM_STEP_NUM_TASKS");
    if (!tasks) {
        return tasks.error();
    }
    const Result<std::uint32_t> nodes = number_of(environment, "SLURM_STEP_NUM_NODES");
    if (!nodes) {
        return nodes.error();
    }
    if (*tasks == 1) {
        return allocation_of_one(environment);
    }
    if (*nodes == 0 || *tasks < *nodes) {
        return invalid_argument("SLURM_STEP_NUM_TASKS=" + std::to_string(*tasks) +
                                " and SLURM_STEP_NUM_NODES=" + std::to_string(*nodes) +
                                " contradict each other");
    }
    if (*tasks > *nodes) {
        return too_many_tasks(*tasks, *nodes);
    }
    return allocation_of(environment, *nodes);
}

}  // namespace regroup::launcher
