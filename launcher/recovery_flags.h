// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "launcher/flag_table.h"
#include "launcher/run_options.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// Declares the flags of `regroup run` that say what a job survives, and how.
void declare_recovery(FlagTable& flags, RunOptions& options);

/// What exit codes ask for unless --on-exit says otherwise: nothing when called as torchrun, which
/// treats them all alike.
[[nodiscard]] std::map<int, rendezvous::Reaction> default_reactions(Front front);

/// "2=fail,75=retry", over what is in `out`; "none" clears it first.
[[nodiscard]] FlagTable::Take reactions_into(std::map<int, rendezvous::Reaction>& out);

}  // namespace regroup::launcher
