// SPDX-License-Identifier: Apache-2.0
#include "agent/health/probe_answer.h"

#include <nlohmann/json.hpp>

#include "rendezvous/json/json_text.h"

namespace regroup::health {

NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(GpuProcess, pid, bytes, command)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Gpu, address, uuid, model, state, error, recovery_action,
                                   remap_pending, remap_failed, uncorrected_errors, clock_reasons,
                                   memory_used, processes)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Xid, address, number, at)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Driver, state, error, limit, gpus, xids, log_end)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(CpuResult, cpu, digest, repeats, products_per_second)
NLOHMANN_DEFINE_TYPE_NON_INTRUSIVE(Probed, driver, cpus, copied_per_second)

std::string write_answer(const Probed& probed) {
    return json_text(nlohmann::json(probed));
}

std::optional<Probed> read_answer(const std::string& text) {
    try {
        return parse_json(text).get<Probed>();
    } catch (const nlohmann::json::exception&) {
        return std::nullopt;
    }
}

}  // namespace regroup::health
