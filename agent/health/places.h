// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <string>

namespace regroup::health {

/// Where the probes look.
struct Places {
    std::filesystem::path root = "/";        ///< The folder with proc, sys and dev.
    std::string nvml = "libnvidia-ml.so.1";  ///< NVIDIA's management library, for dlopen().
};

}  // namespace regroup::health
