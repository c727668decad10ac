// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>

#include <gmock/gmock.h>

namespace regroup::testing {

/// Matches a sentence that contains each of the words. A matcher among them must match, too.
template <class... Words>
::testing::Matcher<std::string> saying(const Words&... words) {
    const auto part = [](const auto& word) -> ::testing::Matcher<std::string> {
        if constexpr (std::is_convertible_v<decltype(word), std::string>) {
            return ::testing::HasSubstr(std::string(word));
        } else {
            return word;
        }
    };
    return ::testing::AllOfArray({::testing::Matcher<std::string>(::testing::_), part(words)...});
}

}  // namespace regroup::testing
