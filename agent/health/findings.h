// SPDX-License-Identifier: Apache-2.0
//
// Judges what the probes found. Pure.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/health/facts.h"
#include "rendezvous/base/clock.h"

namespace regroup::health {

/// A thing that can be wrong with a node. docs/operating.md has them in a table.
enum class Check : std::uint8_t {
    gpu_driver,
    gpu_library,
    probe,
    gpu_lost,
    gpu_missing,
    gpu_error,
    gpu_count,
    gpu_recovery,
    gpu_remap_failed,
    gpu_remap_pending,
    gpu_memory_errors,
    gpu_clocks,
    gpu_xid_fatal,
    gpu_xid,
    gpu_memory_in_use,
    open_files,
    locked_memory,
    tasks,
    shared_memory,
    system_calls,
    disk_space,
    link_carrier,
    link_speed,
    link_unstable,
    clock,
    cpu_result,
    cpu_speed,
};
inline constexpr std::size_t kChecks = static_cast<std::size_t>(Check::cpu_speed) + 1;

/// "gpu-driver". The names are stable.
[[nodiscard]] std::string_view to_string(Check check) noexcept;
/// True if a node with this finding may not take part; false if it is only warned about.
[[nodiscard]] bool refuses(Check check) noexcept;

struct Finding {
    Check check = Check::gpu_driver;
    /// One sentence without its full stop: the part, what is wrong with it, and what to do.
    std::string text;
    /// False: the part may not be used by this job, so that the finding is only a warning.
    bool certain = true;

    [[nodiscard]] bool refuses() const noexcept { return certain && health::refuses(check); }
};

/// The needs of the job on this node.
struct Needs {
    std::uint32_t workers = 1;
    std::uint64_t ranks = 1;                       ///< Of the smallest world that the job may have.
    std::uint32_t gpus = 0;                        ///< As many as the flags ask for; 0: not known.
    std::optional<std::string> visible_gpus = {};  ///< CUDA_VISIBLE_DEVICES, if set.
    std::optional<std::string> gpu_order = {};     ///< CUDA_DEVICE_ORDER, if set.
    /// The launcher's start, in microseconds since the machine started: later Xids concern this
    /// job.
    std::uint64_t began = 0;
    /// Its own workers may hold memory of GPUs.
    bool has_run = false;
};

/// False if CUDA_VISIBLE_DEVICES hides all GPUs.
[[nodiscard]] bool may_use_gpus(const std::optional<std::string>& visible);

[[nodiscard]] std::vector<Finding> judge_driver(const Driver& driver, const Needs& needs);
[[nodiscard]] std::vector<Finding> judge_cpus(const std::vector<CpuResult>& cpus);
[[nodiscard]] std::vector<Finding> judge_host(const Host& host, const Needs& needs);
/// `first`: the same link when the launcher started.
[[nodiscard]] std::vector<Finding> judge_link(const Link& link, const Link& first);

/// `ahead`: by how much the wall clock of this node is ahead of the daemon's, as far as a message
/// tells that took some time.
[[nodiscard]] std::vector<Finding> judge_clock(Duration ahead);

/// The sentence for a node that may not take part: its first reason, and how many more there are.
/// Empty if it may.
[[nodiscard]] std::string fault(const std::vector<Finding>& findings);

/// "1.5 GiB".
[[nodiscard]] std::string bytes_text(std::uint64_t bytes);

}  // namespace regroup::health
