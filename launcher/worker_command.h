// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "launcher/run_flags.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// True if Python must run the program: a flag asks for it, the name of the command implies it, or
/// the program is a .py file.
[[nodiscard]] bool runs_by_python(const RunFlags& flags);

/// The command that each of `workers` workers executes: the program, or Python with it. The
/// environment is that of this process, with OMP_NUM_THREADS=1 if there are several workers and the
/// variable is not set. --numa-binding and --cpus-per-rank add the placement of the workers, and
/// --gpus-per-rank the GPUs that each of them sees. Notices, and the answer to --report-bindings,
/// go to `notes`. Errors: invalid_argument, when the program does not exist or a placement is not
/// possible.
Result<agent::WorkerCommand> make_worker_command(const RunFlags& flags, std::uint32_t workers,
                                                 std::vector<std::string>& notes);

}  // namespace regroup::launcher
