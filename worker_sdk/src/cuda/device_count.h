// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace regroup::cuda {

/// The number of GPUs that CUDA_VISIBLE_DEVICES leaves of the GPUs with these `uuids` ("GPU-..."),
/// by CUDA's rules: the list ends at the first entry that names no GPU, and none are left if an
/// entry is repeated. Nothing if the list names parts of GPUs (MIG).
[[nodiscard]] std::optional<int> count_visible(const std::vector<std::string>& uuids,
                                               const std::optional<std::string>& visible);

/// Asks `library`, NVIDIA's management library, which leaves CUDA's driver uninitialised: a fork of
/// a process that has initialised the driver cannot use CUDA. Nothing if the library cannot tell:
/// it is not there, the driver supports only CUDA older than `cuda_version` (13000 for 13.0), or
/// GPUs are divided (MIG). Never throws.
[[nodiscard]] std::optional<int> count_without_driver(const char* library, int cuda_version,
                                                      const std::optional<std::string>& visible);

}  // namespace regroup::cuda
