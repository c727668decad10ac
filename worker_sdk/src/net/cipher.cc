// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/cipher.h"

#include <sodium.h>

namespace regroup::net {
namespace {

constexpr std::size_t kNonceBytes = crypto_aead_xchacha20poly1305_ietf_NPUBBYTES;
constexpr std::size_t kTagBytes = crypto_aead_xchacha20poly1305_ietf_ABYTES;

unsigned char* raw(std::string& text) {
    return reinterpret_cast<unsigned char*>(text.data());
}
const unsigned char* raw(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

std::string seal(const security::Key& key, std::string_view place, std::string_view text) {
    static_assert(crypto_aead_xchacha20poly1305_ietf_KEYBYTES == security::Key::kBytes);
    std::string sealed(kNonceBytes + text.size() + kTagBytes, '\0');
    // So long a nonce may be random.
    const security::Key nonce = security::Key::random();
    sealed.replace(0, kNonceBytes, reinterpret_cast<const char*>(nonce.bytes().data()),
                   kNonceBytes);
    crypto_aead_xchacha20poly1305_ietf_encrypt(raw(sealed) + kNonceBytes, nullptr, raw(text),
                                               text.size(), raw(place), place.size(), nullptr,
                                               raw(sealed), key.bytes().data());
    return sealed;
}

std::optional<std::string> unseal(const security::Key& key, std::string_view place,
                                  std::string_view sealed) {
    if (sealed.size() < kNonceBytes + kTagBytes) {
        return std::nullopt;
    }
    std::string text(sealed.size() - kNonceBytes - kTagBytes, '\0');
    const std::string_view rest = sealed.substr(kNonceBytes);
    if (crypto_aead_xchacha20poly1305_ietf_decrypt(raw(text), nullptr, nullptr, raw(rest),
                                                   rest.size(), raw(place), place.size(),
                                                   raw(sealed), key.bytes().data()) != 0) {
        return std::nullopt;
    }
    return text;
}

}  // namespace regroup::net
