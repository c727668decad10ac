// SPDX-License-Identifier: Apache-2.0
//
// The parser and the writer of JSON. They are templates that take seconds to compile: only this
// library has them.
#pragma once

#include <string>
#include <string_view>

#include <nlohmann/json_fwd.hpp>

namespace regroup {

/// `text` as a value. If it is no JSON, `is_discarded()` of the result is true.
[[nodiscard]] nlohmann::json parse_json(std::string_view text);
/// The same, with the fields of objects in the order of the text.
[[nodiscard]] nlohmann::ordered_json parse_ordered_json(std::string_view text);

/// The field of an object; null if `object` has no such field, or is no object.
[[nodiscard]] const nlohmann::json& field_of(const nlohmann::json& object, const char* field);

/// `value` on one line. Bytes that are no UTF-8 are replaced.
[[nodiscard]] std::string json_text(const nlohmann::json& value);
[[nodiscard]] std::string json_text(const nlohmann::ordered_json& value);
/// The same in ASCII alone.
[[nodiscard]] std::string ascii_json_text(const nlohmann::json& value);
[[nodiscard]] std::string ascii_json_text(const nlohmann::ordered_json& value);

}  // namespace regroup
