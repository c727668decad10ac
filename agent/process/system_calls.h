// SPDX-License-Identifier: Apache-2.0
//
// System calls beyond POSIX that a sandbox may refuse, such as that of an old container runtime,
// which answers EPERM to calls that it does not know.
#pragma once

#include <string>
#include <vector>

namespace regroup::agent {

/// Those that this process or its workers would make, and can do without.
[[nodiscard]] std::vector<std::string> refused_calls();

/// The first one that is refused of those without which regroup cannot run; else empty.
[[nodiscard]] std::string missing_call();

}  // namespace regroup::agent
