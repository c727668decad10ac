// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/watch/record_saver.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// The value of an environment variable of this process, if it is set.
[[nodiscard]] std::optional<std::string> variable(const char* name);

/// The host name that the kernel knows. Asks no name server.
[[nodiscard]] std::string full_host_name();
/// The host name up to its first dot, or "localhost" if the kernel has none.
[[nodiscard]] std::string short_host_name();

/// The name of the user's account; without one, the value of LOGNAME or USER; else "user 1000".
[[nodiscard]] std::string user_name(uid_t user);

/// This machine's addresses on interfaces that are up, loopback excluded, IPv4 first.
[[nodiscard]] std::vector<std::string> own_addresses();

/// True if `host` is a name or address of this machine: localhost, its host name, a loopback
/// address, or an address of an interface. Asks a name server only if nothing else decides.
[[nodiscard]] bool names_this_host(const std::string& host);

/// CPUs on which this process may run: those of its affinity mask, and no more than the quota of
/// its cgroup, rounded up. At least 1. `root`: the folder with proc and all mount points.
[[nodiscard]] std::uint32_t count_cpus(const std::string& root = "/");
/// The machine's NVIDIA GPUs: those in /proc/driver/nvidia/gpus. `root`: below it lies proc.
[[nodiscard]] std::uint32_t count_installed_gpus(const std::string& root = "");
/// NVIDIA GPUs that this process may use: those in /proc/driver/nvidia/gpus, or, if there are any
/// and it is set, the entries of CUDA_VISIBLE_DEVICES. `root`: below it lies proc.
[[nodiscard]] std::uint32_t count_gpus(const std::string& root = "");

/// --nproc-per-node as a number. Adds a notice if the quota of the cgroup decides. Errors:
/// invalid_argument when "gpu" is asked for and there is none.
Result<std::uint32_t> count_workers(const std::string& nproc_per_node,
                                    std::vector<std::string>& notes, const std::string& root = "/");

/// True if a terminal of the kind in TERM can move its cursor.
[[nodiscard]] bool terminal_has_cursor();

/// The folder of what regroup keeps for this user: regroup in XDG_STATE_HOME, or in .local/state of
/// the home folder. Empty if neither variable is set.
[[nodiscard]] std::string state_folder();

/// How PyTorch's NCCL back end writes its flight record, if the user has set that up.
[[nodiscard]] agent::TorchPipe torch_pipe();

}  // namespace regroup::launcher
