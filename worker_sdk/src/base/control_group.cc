// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/control_group.h"

#include <algorithm>
#include <fstream>
#include <limits>
#include <sstream>
#include <string>
#include <sys/stat.h>

#include "rendezvous/cgroup/cgroup.h"

namespace regroup {
namespace {

std::uint64_t inode_of(const std::filesystem::path& folder) {
    struct stat facts{};
    return ::stat(folder.c_str(), &facts) == 0 ? facts.st_ino : 0;
}

}  // namespace

ProcessorQuota control_group_processors(const std::filesystem::path& root) {
    const auto quota = cgroup::cpu_quota(root);
    return quota ? ProcessorQuota{.group = inode_of(quota->folder),
                                  .processors = std::max<std::uint64_t>(
                                      1, static_cast<std::uint64_t>(quota->cpus))}
                 : ProcessorQuota();
}

std::size_t available_memory_bytes() {
    const std::size_t allowed =
        cgroup::memory_left().value_or(std::numeric_limits<std::size_t>::max());
    std::ifstream file("/proc/meminfo");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string name;
        std::size_t kibibytes = 0;
        if (words >> name >> kibibytes && name == "MemAvailable:") {
            return std::min(allowed, kibibytes * 1024);
        }
    }
    return allowed;
}

}  // namespace regroup
