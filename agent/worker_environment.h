// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"

namespace regroup::agent {

/// What one worker's environment is made of.
struct WorkerIdentity {
    std::string job;
    Assignment assignment;
    std::string role;
    std::uint32_t local_rank = 0;
    std::uint32_t local_world_size = 1;
    std::uint32_t max_restarts = 0;
    /// Where the worker may describe its own error; empty for nowhere.
    std::string error_file;
    /// Signal names, as the launcher's --signals-to-handle has them.
    std::string signals_to_handle;
    /// Every worker gets local rank 0 and sees one device, its own.
    bool virtual_local_rank = false;
    /// CUDA_VISIBLE_DEVICES, in place of what is inherited and of a virtual local rank's own.
    std::optional<std::string> visible_devices;
    /// Where the worker's section timers go (see Watchdog); empty for nowhere.
    std::string watchdog_file;
    /// GLOO_SOCKET_IFNAME, unless it is inherited; empty: leave it alone.
    std::string network_interface;
    /// Where a worker with the SDK finds its agent, and by which it is known there; empty: it has
    /// no link.
    std::string agent_socket;
    std::string worker_id;
    /// It is started ahead of a round: what only a round decides (its rank, the world, the master)
    /// is not in its environment, and comes over the link.
    bool ahead = false;
    /// OMP_NUM_THREADS, in place of what is inherited; 0: leave it alone.
    std::uint32_t threads = 0;
};

/// The one device that a worker with a virtual local rank sees: the entry of that local rank in
/// CUDA_VISIBLE_DEVICES as it is inherited, or the local rank itself without that variable.
/// Errors: invalid_argument, when the variable has too few entries.
Result<std::string> visible_device(const std::vector<std::string>& inherited,
                                   std::uint32_t local_rank);

/// `inherited` ("NAME=value" each) overlaid with the variables that torchrun gives its workers,
/// REGROUP_ROUND and those of the link. Requires visible_device() for a virtual local rank without
/// `visible_devices`. The contract of every launched program: names and spellings are PyTorch's.
[[nodiscard]] std::vector<std::string> worker_environment(std::vector<std::string> inherited,
                                                          const WorkerIdentity& worker);

/// The value of `name` in `environment`, or nullptr.
[[nodiscard]] const char* find_variable(const std::vector<std::string>& environment,
                                        const std::string& name);

}  // namespace regroup::agent
