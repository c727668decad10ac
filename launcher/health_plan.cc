// SPDX-License-Identifier: Apache-2.0
#include "launcher/health_plan.h"

#include <cstdlib>

#include "launcher/flag_values.h"
#include "launcher/host.h"

namespace regroup::launcher {

namespace {

health::Level level_of(const std::string& word) {
    if (word == "off") {
        return health::Level::off;
    }
    return word == "full" ? health::Level::full : health::Level::basic;
}

/// The GPUs that the flags ask for; 0: they ask for none.
std::uint32_t gpus_needed(const RunOptions& options, std::uint32_t workers) {
    if (const auto each = parse_number<std::uint32_t>(options.gpus_per_rank)) {
        return workers * *each;
    }
    const bool one_each =
        options.workers == "gpu" || (options.workers == "auto" && count_gpus() > 0);
    return one_each ? workers : 0;
}

}  // namespace

health::CheckOptions health_checks(const RunOptions& options, const agent::AgentConfig& agent,
                                   const std::filesystem::path& folder) {
    health::CheckOptions checks;
    checks.level = level_of(options.health);
    checks.needs.workers = agent.offer.workers;
    checks.needs.ranks = std::uint64_t{agent.offer.workers} * agent.policy.nodes_min;
    checks.needs.gpus = gpus_needed(options, agent.offer.workers);
    if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
        checks.needs.visible_gpus = visible;
    }
    if (const char* order = std::getenv("CUDA_DEVICE_ORDER")) {
        checks.needs.gpu_order = order;
    }
    checks.log_folder = folder;
    return checks;
}

}  // namespace regroup::launcher
