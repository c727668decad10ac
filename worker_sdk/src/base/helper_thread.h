// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <thread>

namespace regroup {

/// Starts a thread of the SDK inside the user's program. Debuggers show `name` (15 characters at
/// most). The thread never runs the program's signal handlers. Throws an Error (system).
[[nodiscard]] std::thread start_helper_thread(const char* name, std::function<void()> body);

}  // namespace regroup
