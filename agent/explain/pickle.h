// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <string_view>

#include <nlohmann/json.hpp>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// The most values that a pickle may have, counting one again for each place that shows it.
inline constexpr std::size_t kPickleValuesMax = 4'000'000;

/// Reads a Python pickle that has only data: dictionaries with texts or numbers as keys, lists,
/// tuples, texts, numbers, truth values, None. PyTorch writes its flight records in this format. A
/// pickle that names a class or a function is refused; nothing is executed. Errors:
/// invalid_argument.
[[nodiscard]] Result<nlohmann::json> read_pickle(std::string_view bytes,
                                                 std::size_t values_max = kPickleValuesMax);

}  // namespace regroup::agent
