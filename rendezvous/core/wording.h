// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string>

namespace regroup::rendezvous {

/// "1 node", "3 nodes".
[[nodiscard]] inline std::string counted(std::size_t count, const std::string& what) {
    return std::to_string(count) + " " + what + (count == 1 ? "" : "s");
}

}  // namespace regroup::rendezvous
