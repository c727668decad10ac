// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/base64.h"

#include <algorithm>
#include <cstdint>

namespace regroup::journal {

namespace {

constexpr std::string_view kDigits =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string text;
    text.reserve((bytes.size() + 2) / 3 * 4);
    for (std::size_t i = 0; i < bytes.size(); i += 3) {
        std::uint32_t group = 0;
        const std::size_t count = std::min<std::size_t>(3, bytes.size() - i);
        for (std::size_t j = 0; j < 3; ++j) {
            group = group << 8U | (j < count ? static_cast<unsigned char>(bytes[i + j]) : 0U);
        }
        for (std::size_t j = 0; j < 4; ++j) {
            text += j <= count ? kDigits[group >> (18 - 6 * j) & 63U] : '=';
        }
    }
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    if (text.size() % 4 != 0) {
        return std::nullopt;
    }
    std::string bytes;
    for (std::size_t i = 0; i < text.size(); i += 4) {
        const bool last = i + 4 == text.size();
        std::size_t padding = 0;
        if (last) {
            padding = text[i + 3] == '=' ? (text[i + 2] == '=' ? 2 : 1) : 0;
        }
        std::uint32_t group = 0;
        for (std::size_t j = 0; j < 4; ++j) {
            const std::size_t digit = j < 4 - padding ? kDigits.find(text[i + j]) : 0;
            if (digit == std::string_view::npos) {
                return std::nullopt;
            }
            group = group << 6U | static_cast<std::uint32_t>(digit);
        }
        for (std::size_t j = 0; j < 3 - padding; ++j) {
            bytes += static_cast<char>(group >> (16 - 8 * j) & 255U);
        }
    }
    return bytes;
}

}  // namespace regroup::journal
