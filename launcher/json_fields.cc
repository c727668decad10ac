// SPDX-License-Identifier: Apache-2.0
#include "launcher/json_fields.h"

#include <algorithm>

#include "rendezvous/base/printable.h"

namespace regroup::launcher {

using nlohmann::json;

std::string text(const json& object, const char* key) {
    return printable(text_in(object, key));
}

Duration seconds(const json& object, const char* key) {
    return std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(std::clamp(real_in(object, key), 0.0, 1e9)));
}

std::string ranks_of(const json& node) {
    if (!node.is_object() || !node.contains("first_rank")) {
        return "-";
    }
    const std::uint64_t first = number_in(node, "first_rank");
    const std::uint64_t workers = number_in(node, "workers");
    return workers <= 1 ? std::to_string(first)
                        : std::to_string(first) + "-" + std::to_string(first + workers - 1);
}

}  // namespace regroup::launcher
