// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/allocation.h"

#include <cstdlib>

namespace regroup::launcher {

Environment process_environment() {
    return [](const std::string& name) -> std::optional<std::string> {
        const char* value = std::getenv(name.c_str());
        return value != nullptr ? std::optional<std::string>(value) : std::nullopt;
    };
}

Result<std::optional<Allocation>> find_allocation(const Environment& environment) {
    Result<std::optional<Allocation>> found = find_slurm_allocation(environment);
    if (!found || *found) {
        return found;
    }
    return find_kubernetes_allocation(environment);
}

bool repeats_sigterm(const Environment& environment) {
    return environment("SLURM_JOB_ID").has_value();
}

std::uint16_t port_of_job(const std::string& job) {
    constexpr std::uint32_t kFirst = 20000;
    constexpr std::uint32_t kCount = 12000;
    std::uint32_t hash = 2166136261U;  // FNV-1a: the same on all machines.
    for (const char c : job) {
        hash = (hash ^ static_cast<unsigned char>(c)) * 16777619U;
    }
    return static_cast<std::uint16_t>(kFirst + hash % kCount);
}

}  // namespace regroup::launcher
