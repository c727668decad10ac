// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/base64.h"

#include <sodium.h>

namespace regroup::security {

namespace {

constexpr int kVariant = sodium_base64_VARIANT_ORIGINAL;

}  // namespace

std::string to_base64(std::string_view bytes) {
    std::string text(sodium_base64_encoded_len(bytes.size(), kVariant), '\0');
    sodium_bin2base64(text.data(), text.size(),
                      reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), kVariant);
    text.pop_back();  // The zero byte at its end.
    return text;
}

std::optional<std::string> from_base64(std::string_view text) {
    std::string bytes(text.size() / 4 * 3, '\0');
    std::size_t count = 0;
    const int error =
        sodium_base642bin(reinterpret_cast<unsigned char*>(bytes.data()), bytes.size(), text.data(),
                          text.size(), nullptr, &count, nullptr, kVariant);
    if (error != 0) {
        return std::nullopt;
    }
    bytes.resize(count);
    return bytes;
}

}  // namespace regroup::security
