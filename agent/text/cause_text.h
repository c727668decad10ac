// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "agent/core/causes.h"

namespace regroup::agent {

/// The text of a cause, as the rest of a line: "stopped by SIGTERM", "rank 1 on a was ended by
/// SIGSEGV".
[[nodiscard]] std::string text_of(const Cause& cause);

/// The text of the reason why an agent ends: "drained: stopped by SIGTERM". Empty if the verdict of
/// the job has the reason.
[[nodiscard]] std::string text_of(const QuitReason& reason);

}  // namespace regroup::agent
