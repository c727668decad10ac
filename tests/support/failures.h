// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>

#include "rendezvous/base/result.h"
#include "tests/support/matchers.h"

namespace regroup::testing {

MATCHER_P2(IsFailure, code, sentence, "a failure with such a sentence") {
    return !arg && (!code || arg.error().code == *code) &&
           ::testing::ExplainMatchResult(sentence, arg.error().detail, result_listener);
}

}  // namespace regroup::testing

namespace regroup {

/// Matches a Result that is a failure by the code and parts of the sentence; see saying().
template <class... Words>
auto fails(Errc code, const Words&... words) {
    return testing::IsFailure(std::optional(code), saying(words...));
}
template <class... Words>
auto fails(const Words&... words) {
    return testing::IsFailure(std::optional<Errc>(), saying(words...));
}

}  // namespace regroup
