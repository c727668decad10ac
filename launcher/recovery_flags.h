// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>

#include "launcher/flag_table.h"
#include "launcher/run_options.h"
#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// Declares the flags of the group "Recovery": which failures a job survives, and how.
void declare_recovery(FlagTable& flags, RunOptions& options);

/// The reactions to exit codes without --on-exit. None under the name torchrun, which treats all
/// codes alike.
[[nodiscard]] std::map<int, rendezvous::Reaction> default_reactions(Front front);

/// "2=fail,75=retry", added to the entries in `out`. "none" clears `out`.
[[nodiscard]] FlagTable::Take reactions_into(std::map<int, rendezvous::Reaction>& out);

}  // namespace regroup::launcher
