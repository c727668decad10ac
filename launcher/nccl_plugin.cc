// SPDX-License-Identifier: Apache-2.0
#include "launcher/nccl_plugin.h"

#include <cstddef>
#include <string_view>
#include <system_error>

#include "agent/workers/worker_environment.h"

namespace regroup::launcher {

namespace {

namespace fs = std::filesystem;

constexpr const char* kVariable = "NCCL_PROFILER_PLUGIN";
constexpr const char* kLibrary = "libnccl-profiler-regroup.so";
/// Since 2.26 NCCL cuts longer names off.
constexpr std::size_t kPathBytesMax = 254;

}  // namespace

std::string find_nccl_plugin(const fs::path& folder) {
    for (const fs::path& place : {folder, folder.parent_path() / "lib" / "regroup"}) {
        const fs::path path = place / kLibrary;
        std::error_code error;
        if (fs::is_regular_file(path, error) && path.native().size() <= kPathBytesMax) {
            return path.native();
        }
    }
    return "";
}

void add_nccl_plugin(const std::string& plugin, std::vector<std::string>& environment,
                     std::vector<std::string>& notes) {
    const char* const given = agent::find_variable(environment, kVariable);
    const std::string_view present = given != nullptr ? given : "";
    // A launcher may run under another launcher.
    const bool is_own = fs::path(present).filename() == kLibrary;
    if (plugin.empty() || (given != nullptr && !is_own)) {
        if (!plugin.empty() && !present.empty() && present != "none") {
            notes.push_back(std::string(kVariable) + "=" + std::string(present) +
                            " stays, so hangs are explained without NCCL's own view: NCCL loads "
                            "one plugin, and that of regroup stands aside");
        }
        return;
    }
    std::erase_if(environment, [](const std::string& entry) {
        return entry.starts_with(std::string(kVariable) + "=");
    });
    environment.push_back(std::string(kVariable) + "=" + plugin);
}

fs::path own_folder() {
    std::error_code error;
    return fs::read_symlink("/proc/self/exe", error).parent_path();
}

}  // namespace regroup::launcher
