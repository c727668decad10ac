// SPDX-License-Identifier: Apache-2.0
//
// Fields of a daemon's JSON for people; see rendezvous/json/json_fields.h.
#pragma once

#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/json/json_fields.h"

namespace regroup::launcher {

/// As printable() shows it.
[[nodiscard]] std::string text(const nlohmann::json& object, const char* key);
/// From a field in seconds, at most 1e9.
[[nodiscard]] Duration seconds(const nlohmann::json& object, const char* key);
/// "0-7" for a node of a round, "3" if it has one worker, "-" without a round.
[[nodiscard]] std::string ranks_of(const nlohmann::json& node);

}  // namespace regroup::launcher
