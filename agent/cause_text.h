// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/core/causes.h"

namespace regroup::agent {

/// The cause in words, as the rest of a line: "stopped by SIGTERM", "rank 1 on a was ended by
/// SIGSEGV".
[[nodiscard]] std::string text_of(const Cause& cause);

/// Why an agent ends: "drained: stopped by SIGTERM". Empty if the job's verdict says it.
[[nodiscard]] std::string text_of(const QuitReason& reason);

}  // namespace regroup::agent
