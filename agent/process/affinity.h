// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The CPUs in the affinity mask of this thread, ascending. Errors: system.
[[nodiscard]] Result<std::vector<int>> allowed_cpus();

}  // namespace regroup::agent
