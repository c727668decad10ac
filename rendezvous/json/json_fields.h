// SPDX-License-Identifier: Apache-2.0
//
// Fields of JSON that another version may have written: some are absent, and others have another
// type at worst. Those count as empty. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <nlohmann/json.hpp>

namespace regroup {

/// Null if `object` has no such field, or is no object.
[[nodiscard]] const nlohmann::json& field_in(const nlohmann::json& object, std::string_view key);
/// The bytes themselves.
[[nodiscard]] std::string text_in(const nlohmann::json& object, std::string_view key);
[[nodiscard]] std::uint64_t number_in(const nlohmann::json& object, std::string_view key);
/// Any finite number.
[[nodiscard]] double real_in(const nlohmann::json& object, std::string_view key);
[[nodiscard]] bool flag_in(const nlohmann::json& object, std::string_view key);

}  // namespace regroup
