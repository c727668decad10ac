// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "launcher/cluster/allocation.h"
#include "launcher/flag_table.h"
#include "rendezvous/base/result.h"
#include "rendezvous/core/job_policy.h"

namespace regroup::launcher {

/// "auto", "name", "joined", "scheduler", "topology" or "file:PATH", whose path goes to `file`.
[[nodiscard]] FlagTable::Take rank_order_into(rendezvous::RankOrder& order, std::string& file);

/// The text by which the daemon orders this node (see rendezvous::Offer); empty: its name decides.
/// `names`: the names and addresses of this node, the one that it has in the job first.
/// `allocation`: the scheduler's, if the flags follow it. `notes` gets what the user should know.
/// Errors: invalid_argument, one line that names the flag, and what is missing or wrong.
[[nodiscard]] Result<std::string> rank_key(rendezvous::RankOrder order, const std::string& file,
                                           const std::optional<Allocation>& allocation,
                                           const std::vector<std::string>& names,
                                           std::vector<std::string>& notes);

}  // namespace regroup::launcher
