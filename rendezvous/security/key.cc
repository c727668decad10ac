// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/key.h"

#include <sodium.h>

#include "rendezvous/base/ensure.h"

namespace regroup::security {
namespace {

constexpr std::size_t kTextBits = 128;
constexpr std::size_t kSecretBytesMin = 22;  // Of random_text().

// A second call costs nothing.
void prepare() {
    ENSURE(sodium_init() >= 0);
}

std::string to_hex(const std::uint8_t* bytes, std::size_t count) {
    std::string text(2 * count + 1, '\0');
    sodium_bin2hex(text.data(), text.size(), bytes, count);
    text.pop_back();
    return text;
}

const unsigned char* bytes_of(std::string_view text) {
    return reinterpret_cast<const unsigned char*>(text.data());
}

}  // namespace

Key Key::random() {
    prepare();
    Key key;
    randombytes_buf(key.bytes_.data(), kBytes);
    return key;
}

std::optional<Key> Key::from_hex(std::string_view text) {
    prepare();
    Key key;
    std::size_t count = 0;
    const char* end = nullptr;
    const bool is_hex =
        text.size() == 2 * kBytes && sodium_hex2bin(key.bytes_.data(), kBytes, text.data(),
                                                    text.size(), nullptr, &count, &end) == 0;
    if (!is_hex || count != kBytes) {
        return std::nullopt;
    }
    return key;
}

std::optional<Key> Key::from_secret(std::string_view text) {
    prepare();
    if (text.size() < kSecretBytesMin) {
        return std::nullopt;
    }
    static_assert(crypto_hash_sha256_BYTES == kBytes);
    Key key;
    crypto_hash_sha256(key.bytes_.data(), bytes_of(text), text.size());
    return key;
}

Key::~Key() {
    sodium_memzero(bytes_.data(), kBytes);
}

std::string Key::hex() const {
    return to_hex(bytes_.data(), kBytes);
}

Key Key::derive(std::string_view purpose) const {
    Key key;
    key.bytes_ = mac(purpose);
    return key;
}

Mac Key::mac(std::string_view message) const {
    prepare();
    static_assert(crypto_auth_hmacsha256_KEYBYTES == kBytes);
    Mac mac{};
    crypto_auth_hmacsha256(mac.data(), bytes_of(message), message.size(), bytes_.data());
    return mac;
}

bool Key::verifies(std::string_view message, const Mac& mac) const {
    prepare();
    return crypto_auth_hmacsha256_verify(mac.data(), bytes_of(message), message.size(),
                                         bytes_.data()) == 0;
}

bool operator==(const Key& a, const Key& b) noexcept {
    return sodium_memcmp(a.bytes_.data(), b.bytes_.data(), Key::kBytes) == 0;
}

std::uint64_t random_number() {
    prepare();
    std::uint64_t number = 0;
    randombytes_buf(&number, sizeof number);
    return number;
}

std::string random_text() {
    prepare();
    std::array<unsigned char, kTextBits / 8> bytes{};
    randombytes_buf(bytes.data(), bytes.size());
    std::array<char,
               sodium_base64_ENCODED_LEN(kTextBits / 8, sodium_base64_VARIANT_URLSAFE_NO_PADDING)>
        text{};
    sodium_bin2base64(text.data(), text.size(), bytes.data(), bytes.size(),
                      sodium_base64_VARIANT_URLSAFE_NO_PADDING);
    return text.data();
}

}  // namespace regroup::security
