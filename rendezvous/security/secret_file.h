// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

#include "rendezvous/base/result.h"

namespace regroup::security {

/// Reads the first line of a file that only this user may read. `what` names the file in errors:
/// "the password file". Does not block. Errors: invalid_argument for a file that another
/// user owns or may read, for one that is not regular, and for a line that is empty or longer than
/// `bytes_max`; system. Each names the file and the remedy; none repeats its content.
[[nodiscard]] Result<std::string> read_secret_line(const std::string& path, const std::string& what,
                                                   std::size_t bytes_max);

}  // namespace regroup::security
