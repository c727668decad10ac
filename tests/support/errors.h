// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <functional>
#include <optional>
#include <string>

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

}  // namespace regroup::testing
