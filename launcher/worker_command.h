// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "launcher/run_options.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// True if the program is Python's to run: it was asked for, the command's name implies it, or it
/// is a .py file.
[[nodiscard]] bool runs_by_python(const RunOptions& options);

/// What each of `workers` workers executes: the program itself or Python with it, this process's
/// environment, and OMP_NUM_THREADS=1 if there are several and nobody has chosen a number. What a
/// person should know of that goes to `notes`. Errors: invalid_argument, when there is no such
/// program.
/// With --numa-binding, --cpus-per-rank or --report-bindings it also has the workers' places, with
/// --gpus-per-rank the GPUs that each of them sees; the report is among the notes.
Result<agent::WorkerCommand> make_worker_command(const RunOptions& options, std::uint32_t workers,
                                                 std::vector<std::string>& notes);

}  // namespace regroup::launcher
