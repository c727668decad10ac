// SPDX-License-Identifier: Apache-2.0
//
// The allocation that a cluster's scheduler describes in the environment: Slurm and Kubernetes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// One node's part of what a scheduler has allocated to a job: defaults for the flags that are not
/// given. Pure values of the environment; nothing is asked or resolved.
struct Allocation {
    std::string scheduler;  ///< For messages: "Slurm", "Kubernetes".
    std::string job;        ///< Default of --rdzv-id; differs between two runs of one job.
    /// Default of --nnodes. 0: the scheduler does not say, and without --nnodes each of its nodes
    /// is a job of its own.
    std::uint32_t nodes = 1;
    std::string workers;      ///< Default of --nproc-per-node; empty: the scheduler says nothing.
    std::uint32_t index = 0;  ///< This node's place in the scheduler's order, from 0.
    std::string head;         ///< Name or address of the node that runs the daemon.
    std::string head_is_unknown_because;  ///< Why `head` is empty, and what to do about it.
    std::string head_advice;              ///< Advice if `head` cannot be resolved; may be empty.
    bool is_head = false;                 ///< This node is that one.
    std::uint16_t port = 0;               ///< Where it serves it; 0: port_of_job().
    std::string node_name;  ///< The scheduler's name of this node; empty: the host's name.
    std::string address;    ///< Default of --local-addr; empty: the address that the daemon sees.
    std::string topology;   ///< Path of switches to this node: "s0.s4.node7"; may be empty.
    std::vector<std::string> notes;  ///< Notices to print at the start.
};

/// The value of an environment variable, if it is set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
/// The variables of this process.
[[nodiscard]] Environment process_environment();

/// The allocation in which this process runs; nothing outside of schedulers. A single task on a
/// single node has no head, only workers.
/// Errors: invalid_argument, one line that names the variable or the scheduler's flag to correct.
[[nodiscard]] Result<std::optional<Allocation>> find_allocation(const Environment& environment);

/// The part of each scheduler.
[[nodiscard]] Result<std::optional<Allocation>> find_slurm_allocation(
    const Environment& environment);
[[nodiscard]] Result<std::optional<Allocation>> find_kubernetes_allocation(
    const Environment& environment);

/// True in a job of Slurm. It sends SIGTERM at the beginning and at the end of a grace time, and
/// more than once at the time limit; time to save follows each of them.
[[nodiscard]] bool repeats_sigterm(const Environment& environment);

/// A port for the daemon of `job`, the same on all its nodes: 20000 to 31999, below the ephemeral
/// ones.
[[nodiscard]] std::uint16_t port_of_job(const std::string& job);

}  // namespace regroup::launcher
