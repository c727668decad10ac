// SPDX-License-Identifier: Apache-2.0
//
// Explains why ranks are out of step: some have called finish(), and some have not. They are in
// different collectives then, and the group knows only that these differ. So each rank notes in the
// store of the round what it does.
#pragma once

#include <regroup/context.h>

#include <string>

namespace regroup::elastic {

/// Notes that this rank finishes, or that it does not; the second only after an error.
void note_finish(const Context& context, bool finishes);

/// After an error: says in part of a sentence which ranks have called finish() and which have not.
/// Empty if all do the same. `finishes`: what this rank does.
[[nodiscard]] std::string finish_disagreement(const Context& context, bool finishes);

}  // namespace regroup::elastic
