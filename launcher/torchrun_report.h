// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::launcher {

/// The summary of a failed job in the layout of torchrun's, which log scrapers know: title, other
/// failures (never any: what follows from the first is no failure of its own), root cause.
/// `entry_point` is what the title calls the program.
[[nodiscard]] std::vector<std::string> torchrun_summary(const std::string& entry_point,
                                                        const rendezvous::WorkerFailure& failure);

}  // namespace regroup::launcher
