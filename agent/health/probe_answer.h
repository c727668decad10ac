// SPDX-License-Identifier: Apache-2.0
//
// The answer of the probe process, as text. Both ends are the same program.
#pragma once

#include <optional>
#include <string>

#include "agent/health/facts.h"

namespace regroup::health {

[[nodiscard]] std::string write_answer(const Probed& probed);
/// Nothing if the text is no complete answer.
[[nodiscard]] std::optional<Probed> read_answer(const std::string& text);

}  // namespace regroup::health
