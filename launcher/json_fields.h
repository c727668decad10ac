// SPDX-License-Identifier: Apache-2.0
//
// Fields of a daemon's JSON status. A daemon of another version may leave some out, and gives other
// types at worst: those count as empty.
#pragma once

#include <cstdint>
#include <string>

#include <nlohmann/json.hpp>

#include "rendezvous/base/clock.h"

namespace regroup::launcher {

/// Null if `object` has no such field, or is no object.
[[nodiscard]] const nlohmann::json& field(const nlohmann::json& object, const char* key);
/// As printable() shows it.
[[nodiscard]] std::string text(const nlohmann::json& object, const char* key);
[[nodiscard]] std::uint64_t number(const nlohmann::json& object, const char* key);
/// Any finite number.
[[nodiscard]] double real(const nlohmann::json& object, const char* key);
[[nodiscard]] bool flag(const nlohmann::json& object, const char* key);
/// From a field in seconds, at most 1e9.
[[nodiscard]] Duration seconds(const nlohmann::json& object, const char* key);
/// The sum of the stages of an element of `incidents`.
[[nodiscard]] Duration total_of(const nlohmann::json& incident);
/// "0-7" for a node of a round, "3" if it has one worker, "-" without a round.
[[nodiscard]] std::string ranks_of(const nlohmann::json& node);
/// "1 node", "2 nodes".
[[nodiscard]] std::string count(std::uint64_t number, const std::string& what);

}  // namespace regroup::launcher
