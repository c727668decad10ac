// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/version.h"

#include <algorithm>
#include <string_view>

namespace regroup::snapshot {

namespace {

constexpr std::size_t kNameBytesMax = 64;

bool is_letter_or_digit(char c) noexcept {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
}

}  // namespace

std::string to_string(const Version& version) {
    return "step " + std::to_string(version.step) + " (round " + std::to_string(version.round) +
           ")";
}

bool is_state_name(const std::string& name) noexcept {
    return !name.empty() && name.size() <= kNameBytesMax && is_letter_or_digit(name.front()) &&
           std::all_of(name.begin(), name.end(), [](char c) {
               return is_letter_or_digit(c) || c == '-' || c == '_' || c == '.';
           });
}

}  // namespace regroup::snapshot
