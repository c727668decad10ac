// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "launcher/run_flags.h"
#include "launcher/run_plan.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// The part of make_run_plan() that decides how the nodes meet: the daemon, the place of this node
/// and its rank, and what the nodes prove to each other. `plan.agent` has the flags of `flags`, and
/// the name of the node. Errors: invalid_argument, one line that names the flag.
Result<void> plan_rendezvous(const RunFlags& flags, RunPlan& plan);

}  // namespace regroup::launcher
