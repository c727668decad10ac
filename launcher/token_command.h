// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>

namespace regroup::launcher {

/// `regroup token`: makes the token of a user or a site, and narrower ones from it. Returns the
/// exit code.
int token_command(std::span<const std::string> arguments);

}  // namespace regroup::launcher
