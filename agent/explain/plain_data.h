// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string_view>

#include <nlohmann/json.hpp>

#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Of one file. A flight record of 20,000 operations with their stacks has 8 MB.
inline constexpr std::size_t kFileBytesMax = std::size_t{10} << 20U;

/// Receives one row. A Failure ends the reading.
using TakeRow = std::function<Result<void>(const nlohmann::json& row)>;

/// Reads JSON, or a Python pickle of plain data (read_pickle), which somebody else has written. If
/// it is a dictionary with a list that is named `rows`, passes the values of this list to `take`,
/// in their order, and leaves them out of the result: a long record never lies in memory as a
/// whole. The memory and the time that the bytes can cost are bounded. Errors: invalid_argument;
/// that of `take`.
[[nodiscard]] Result<nlohmann::json> read_plain_data(std::string_view bytes, std::string_view rows,
                                                     const TakeRow& take);

}  // namespace regroup::agent
