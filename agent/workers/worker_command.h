// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "agent/health/gpu_release.h"
#include "agent/output/output_layout.h"
#include "agent/placement/placement.h"
#include "agent/workers/event_record.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// The command of the workers of this node.
struct WorkerCommand {
    std::string executable;  ///< Absolute.
    /// argv, with the program's name first. From `templates_begin` on, `${local_rank}` is replaced:
    /// by substitute_braced(), or for torchrun by substitute().
    std::vector<std::string> arguments;
    std::size_t templates_begin = 1;
    bool templates_of_torchrun = false;
    std::vector<std::string> environment;
    /// For TORCHELASTIC_SIGNALS_TO_HANDLE.
    std::string signals_to_handle = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    bool virtual_local_rank = false;  ///< See WorkerIdentity.
    /// CUDA_VISIBLE_DEVICES by local rank. Empty: inherited.
    std::vector<std::string> visible_devices;
    std::string watchdog_file;  ///< FIFO of the Watchdog; may be empty.
    /// Placement of the workers, by local rank. Empty: not bound.
    std::vector<RankPlacement> placements;
    bool sets_threads = false;  ///< Set OMP_NUM_THREADS from `placements`.
    /// Python modules that a fork server imports.
    std::vector<std::string> preload;
    /// Without `preload`: a fork server may be prepared while elastic workers train.
    bool prepares = true;
    /// The index in `arguments` after the options of a Python interpreter. Empty: the program is no
    /// Python interpreter, and there is no fork server.
    std::optional<std::size_t> python_program_begin{};
};

struct WorkerGroupOptions {
    std::string host;       ///< Short name of the host, for prefixes.
    std::string full_host;  ///< For failure reports.
    WorkerCommand command;
    OutputOptions output;
    EventSink on_event;  ///< May be empty.
    GpuReleaseOptions gpus{};
    /// Opens a channel for snapshots, and returns the worker's end. Empty: there are none.
    std::function<Result<UniqueFd>()> open_snapshots{};
    /// Whether a worker is connected to the store of the round, as far as this node knows. Empty:
    /// slow starts are not told.
    std::function<bool()> has_store_clients{};
};

}  // namespace regroup::agent
