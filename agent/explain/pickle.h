// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string_view>

#include <nlohmann/json.hpp>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Reads a Python pickle that has only data: dictionaries with texts or numbers as keys, lists,
/// tuples, texts, numbers, truth values, None. Passes them to `out` as nlohmann::json::sax_parse
/// does, a value that the pickle names several times as often; ends when `out` returns false.
/// PyTorch writes its flight records in this format. A pickle that names a class or a function is
/// refused; nothing is executed. Errors: invalid_argument.
[[nodiscard]] Result<void> read_pickle(std::string_view bytes,
                                       nlohmann::json_sax<nlohmann::json>& out);

}  // namespace regroup::agent
