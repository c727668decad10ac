// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "rendezvous/client/endpoint.h"
#include "rendezvous/worker_link/worker_place.h"

namespace regroup::agent {

/// The facts for the environment of one worker.
struct WorkerIdentity {
    worker_link::WorkerPlace place;
    std::string role;
    /// The file for a description of the worker's own error. May be empty.
    std::string error_file;
    /// Signal names, in the format of --signals-to-handle.
    std::string signals_to_handle;
    /// Each worker gets LOCAL_RANK=0 and sees only its own device.
    bool virtual_local_rank = false;
    /// CUDA_VISIBLE_DEVICES. Replaces the inherited value and that of a virtual local rank.
    std::optional<std::string> visible_devices;
    /// The FIFO of the Watchdog. May be empty.
    std::string watchdog_file;
    /// GLOO_SOCKET_IFNAME, unless it is inherited. Empty: do not set it.
    std::string network_interface;
    /// The socket of the agent, and the id of the worker there. Empty: the worker has no link.
    std::string collectives;  ///< The path of its CollectivesPage; empty: it has none.
    std::string agent_socket;
    std::string worker_id;
    /// The worker is started ahead of a round. Its environment has no rank, world or master; they
    /// come over the link.
    bool ahead = false;
    /// OMP_NUM_THREADS. Replaces the inherited value. 0: do not set it.
    std::uint32_t threads = 0;
};

/// The place of the worker in the round of `assignment`, apart from what is the same in all rounds.
/// `relay`: where the worker reaches the store, if not at the master.
[[nodiscard]] worker_link::WorkerPlace place_of(const Assignment& assignment,
                                                std::uint32_t local_rank,
                                                const std::optional<rendezvous::Endpoint>& relay);

/// The device that a worker with a virtual local rank sees: the entry of its local rank in the
/// inherited CUDA_VISIBLE_DEVICES, or the local rank itself without that variable.
/// Errors: invalid_argument, when the variable has too few entries.
Result<std::string> visible_device(const std::vector<std::string>& inherited,
                                   std::uint32_t local_rank);

/// `inherited` ("NAME=value" each) with the variables of the place, the others of torchrun, and the
/// variables of the link, and without the folder of the agent's
/// own credentials (CREDENTIALS_DIRECTORY). Requires that visible_device() succeeds
/// for a virtual local rank without `visible_devices`. Names and spellings are those of PyTorch.
[[nodiscard]] std::vector<std::string> worker_environment(std::vector<std::string> inherited,
                                                          const WorkerIdentity& worker);

/// The value of `name` in `environment`, or nullptr.
[[nodiscard]] const char* find_variable(const std::vector<std::string>& environment,
                                        const std::string& name);

}  // namespace regroup::agent
