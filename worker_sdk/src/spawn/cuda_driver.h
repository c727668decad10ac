// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regroup::spawning {

/// Whether this process has initialised CUDA's driver, through any library. CUDA does not work in
/// forks of such a process. Works in builds without CUDA, too, and initialises nothing.
[[nodiscard]] bool has_initialised_cuda() noexcept;

}  // namespace regroup::spawning
