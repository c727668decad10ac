// SPDX-License-Identifier: Apache-2.0
//
// Comparison of causes with their text for people, and printing of that text.
#pragma once

#include <concepts>
#include <ostream>
#include <string>

#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

template <class Value>
concept Told = std::same_as<Value, Cause> || std::same_as<Value, JobEnding> ||
               std::same_as<Value, Author> || std::same_as<Value, Situation> ||
               std::same_as<Value, Refusal> || std::same_as<Value, Succession> ||
               std::same_as<Value, HangCulprit> || std::same_as<Value, Quarantine>;
template <Told Value>
bool operator==(const Value& value, const char* words) {
    return describe(value) == words;
}
template <Told Value>
bool operator==(const Value& value, const std::string& words) {
    return describe(value) == words;
}
template <Told Value>
void PrintTo(const Value& value, std::ostream* out) {
    *out << describe(value);
}

}  // namespace regroup::rendezvous
