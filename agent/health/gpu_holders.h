// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <set>
#include <string>
#include <sys/types.h>
#include <vector>

#include "agent/health/nvml.h"
#include "agent/health/places.h"

namespace regroup::health {

/// Tells which processes still hold memory of GPUs. A call may take as long as the driver pleases.
class GpuHolders {
   public:
    explicit GpuHolders(const Places& places);

    /// Removes from `pids` those that have ended and hold nothing. A process that has not ended
    /// counts as a holder. Without NVML the end of a process is all that can be known of it.
    ///
    /// The pids are those of this process's namespace. The driver names processes in the namespace
    /// of the process that asks (NVIDIA's open kernel modules do so from 535.113 on). An older
    /// driver in a container names them as the host does: then only the end of a process is known.
    void drop_free(std::set<pid_t>& pids) const;

   private:
    std::unique_ptr<Nvml> nvml_;  ///< Null without NVML.
    std::vector<std::string> addresses_;
};

/// The first argument of the program for a process that watches the memory of GPUs.
inline constexpr const char* kHoldersWord = "watch-gpu-memory";

/// The work of that process, whose arguments after kHoldersWord are the values of Places. Its
/// standard input is a socket that keeps the bounds of packets. Each packet that it gets names
/// ended processes: "4711 4712". It answers with the number of packets that it has got, and with
/// those of all named processes that still hold memory: "2 4711", at last "2". Returns the exit
/// code: 0 when the other end of the socket is closed, or 2 for other arguments.
int answer_holders(const std::vector<std::string>& arguments);

}  // namespace regroup::health
