// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/text.h"

#include <algorithm>

#include "rendezvous/base/utf8.h"

namespace regroup::protocol {

namespace {

constexpr std::size_t kQuotedBytesMax = 40;

// True for a continuation byte of UTF-8; a character has at most three of them.
bool continues_character(char c) {
    return (static_cast<unsigned char>(c) & 0xC0U) == 0x80U;
}

bool is_control(char c) {
    const auto byte = static_cast<unsigned char>(c);
    return byte < 0x20 || byte == 0x7F;
}

}  // namespace

std::string beginning_of(const std::string& text, std::size_t bytes_max) {
    return std::string(regroup::beginning_of(text, bytes_max));
}

std::string end_of(const std::string& text, std::size_t bytes_max) {
    if (text.size() <= bytes_max) {
        return text;
    }
    std::size_t begin = text.size() - bytes_max;
    for (int i = 0; i < 3 && begin < text.size() && continues_character(text[begin]); ++i) {
        ++begin;
    }
    return text.substr(begin);
}

std::string quoted(const std::string& text) {
    std::string shown = beginning_of(text, kQuotedBytesMax);
    std::replace_if(shown.begin(), shown.end(), is_control, '?');
    return "'" + shown + (shown.size() < text.size() ? "..." : "") + "'";
}

bool has_control_characters(const std::string& text) {
    return std::any_of(text.begin(), text.end(), is_control);
}

}  // namespace regroup::protocol
