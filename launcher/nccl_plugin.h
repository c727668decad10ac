// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace regroup::launcher {

/// The profiler plugin for NCCL that belongs to the launcher in `folder`: beside it in a build
/// tree, in ../lib/regroup where it is installed. Empty if there is none, or if its path is too
/// long for NCCL.
[[nodiscard]] std::string find_nccl_plugin(const std::filesystem::path& folder);

/// Names `plugin` to the NCCL of the workers, in their environment. A plugin of the user stays,
/// with a note: NCCL loads only one.
void add_nccl_plugin(const std::string& plugin, std::vector<std::string>& environment,
                     std::vector<std::string>& notes);

/// The folder of this program.
[[nodiscard]] std::filesystem::path own_folder();

}  // namespace regroup::launcher
