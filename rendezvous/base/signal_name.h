// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup {

/// "SIGSEGV", or "signal 77" for a number without a name.
[[nodiscard]] std::string signal_name(int signal);

}  // namespace regroup
