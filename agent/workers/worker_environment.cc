// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/worker_environment.h"

#include <algorithm>
#include <iterator>
#include <sstream>
#include <string_view>
#include <utility>

#include "rendezvous/worker_link/collectives_page.h"
#include "rendezvous/worker_link/messages.h"

namespace regroup::agent {

const char* find_variable(const std::vector<std::string>& environment, const std::string& name) {
    for (const std::string& entry : environment) {
        if (entry.size() > name.size() && entry[name.size()] == '=' && entry.starts_with(name)) {
            return entry.c_str() + name.size() + 1;
        }
    }
    return nullptr;
}

worker_link::WorkerPlace place_of(const Assignment& assignment, std::uint32_t local_rank,
                                  const std::optional<rendezvous::Endpoint>& relay) {
    worker_link::WorkerPlace place;
    place.round = number(assignment.round);
    place.rank = assignment.first_rank + local_rank;
    place.world_size = assignment.world_size;
    place.local_rank = local_rank;
    place.group_rank = assignment.group_rank;
    place.group_world_size = assignment.group_world_size;
    place.role_rank = assignment.role_first_rank + local_rank;
    place.role_world_size = assignment.role_world_size;
    place.restart_count = assignment.restart_count;
    place.master_addr = relay ? relay->host : assignment.master_addr;
    place.master_port = relay ? relay->port : assignment.master_port;
    place.master_node_addr = assignment.master_addr;
    return place;
}

Result<std::string> visible_device(const std::vector<std::string>& inherited,
                                   std::uint32_t local_rank) {
    const char* list = find_variable(inherited, "CUDA_VISIBLE_DEVICES");
    if (list == nullptr) {
        return std::to_string(local_rank);
    }
    std::vector<std::string> devices;
    std::istringstream entries(list);
    for (std::string entry; std::getline(entries, entry, ',');) {
        const std::size_t begin = entry.find_first_not_of(' ');
        const std::size_t end = entry.find_last_not_of(' ');
        devices.push_back(begin == entry.npos ? "" : entry.substr(begin, end + 1 - begin));
    }
    if (devices.empty()) {
        devices.emplace_back();  // Set and empty: no worker sees a device.
        return devices.front();
    }
    if (local_rank >= devices.size()) {
        return Failure(Errc::invalid_argument,
                       "--virtual-local-rank: CUDA_VISIBLE_DEVICES=" + std::string(list) +
                           " names " + std::to_string(devices.size()) +
                           " device(s), too few for local rank " + std::to_string(local_rank));
    }
    return devices[local_rank];
}

namespace {

using Variables = std::vector<std::pair<std::string, std::string>>;

/// The variables of the link. An empty value removes an inherited variable: a launcher may run
/// under another launcher.
Variables link_variables(const WorkerIdentity& worker) {
    return {
        {worker_link::kSocketVariable, worker.agent_socket},
        {worker_link::kWorkerIdVariable, worker.worker_id},
        {worker_link::kPrestartedVariable, worker.ahead ? "1" : ""},
        {worker_link::kCollectivesVariable, worker.collectives},
    };
}

void erase_variables(std::vector<std::string>& environment, const Variables& variables) {
    std::erase_if(environment, [&](const std::string& entry) {
        const std::string_view name = std::string_view(entry).substr(0, entry.find('='));
        return std::any_of(variables.begin(), variables.end(),
                           [&](const auto& variable) { return variable.first == name; });
    });
}

}  // namespace

std::vector<std::string> worker_environment(std::vector<std::string> inherited,
                                            const WorkerIdentity& worker) {
    const char* async_errors = find_variable(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING");
    Variables variables{
        {"ROLE_NAME", worker.role},
        {"TORCHELASTIC_USE_AGENT_STORE", "True"},
        {"TORCHELASTIC_ERROR_FILE", worker.error_file},
        {"TORCHELASTIC_SIGNALS_TO_HANDLE", worker.signals_to_handle},
        {"TORCH_NCCL_ASYNC_ERROR_HANDLING", async_errors != nullptr ? async_errors : "1"},
    };
    worker_link::WorkerPlace place = worker.place;
    place.local_rank = worker.virtual_local_rank ? 0 : place.local_rank;
    Variables unknown;
    worker_link::visit_variables(
        [&](const worker_link::PlaceFact& fact, const std::string& value) {
            (worker.ahead && !fact.is(fact.kFixed) ? unknown : variables)
                .emplace_back(fact.variable, value);
        },
        place);
    erase_variables(inherited, unknown);
    const Variables of_link = link_variables(worker);
    erase_variables(inherited, of_link);
    // systemd keeps the agent's token there.
    erase_variables(inherited, {{"CREDENTIALS_DIRECTORY", ""}});
    std::copy_if(of_link.begin(), of_link.end(), std::back_inserter(variables),
                 [](const auto& variable) { return !variable.second.empty(); });
    if (worker.visible_devices) {
        variables.emplace_back("CUDA_VISIBLE_DEVICES", *worker.visible_devices);
    } else if (worker.virtual_local_rank) {
        variables.emplace_back("CUDA_VISIBLE_DEVICES",
                               *visible_device(inherited, worker.place.local_rank));
    }
    if (!worker.watchdog_file.empty()) {
        variables.emplace_back("TORCHELASTIC_TIMER_FILE", worker.watchdog_file);
    }
    if (!worker.network_interface.empty() &&
        find_variable(inherited, "GLOO_SOCKET_IFNAME") == nullptr) {
        variables.emplace_back("GLOO_SOCKET_IFNAME", worker.network_interface);
    }
    if (worker.threads != 0) {
        variables.emplace_back("OMP_NUM_THREADS", std::to_string(worker.threads));
    }
    erase_variables(inherited, variables);
    for (const auto& [name, value] : variables) {
        inherited.push_back(name + "=" + value);
    }
    return inherited;
}

}  // namespace regroup::agent
