// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>

namespace regroup::testing {

/// Much longer than any step of a test, so that none fails on a busy machine.
inline constexpr std::chrono::seconds kPatience{60};

}  // namespace regroup::testing

namespace regroup {

using testing::kPatience;

}  // namespace regroup
