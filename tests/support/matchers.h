// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <type_traits>

#include <gmock/gmock.h>

namespace regroup {

// The matchers of GoogleMock that most tests use, under their own names.
using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::Contains;
using ::testing::ContainsRegex;
using ::testing::Each;
using ::testing::ElementsAre;
using ::testing::ElementsAreArray;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::MatchesRegex;
using ::testing::Not;
using ::testing::SizeIs;
using ::testing::StartsWith;
using ::testing::UnorderedElementsAre;

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

}  // namespace regroup
