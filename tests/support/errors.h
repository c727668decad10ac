// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <functional>
#include <optional>
#include <string>

#include "tests/support/matchers.h"

namespace regroup::testing {

/// The Error that `action` throws; nothing if it returns.
inline std::optional<Error> error_of(const std::function<void()>& action) {
    try {
        action();
        return std::nullopt;
    } catch (const Error& error) {
        return error;
    }
}

/// The same as "code: sentence"; "no error" if it returns.
inline std::string error_text(const std::function<void()>& action) {
    const std::optional<Error> error = error_of(action);
    return error ? std::string(to_string(error->code())) + ": " + error->what() : "no error";
}

MATCHER_P2(IsError, code, sentence, "an error with such a sentence") {
    return arg.has_value() && (!code || arg->code() == *code) &&
           ::testing::ExplainMatchResult(sentence, std::string(arg->what()), result_listener);
}

}  // namespace regroup::testing

namespace regroup {

using testing::error_of;
using testing::error_text;

/// Matches the result of error_of() by the code and parts of the sentence; see saying().
template <class... Words>
auto is_error(Errc code, const Words&... words) {
    return testing::IsError(std::optional(code), saying(words...));
}
template <class... Words>
auto is_error(const Words&... words) {
    return testing::IsError(std::optional<Errc>(), saying(words...));
}

}  // namespace regroup
