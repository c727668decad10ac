// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace regroup::security {

/// A message authentication code, HMAC-SHA-256.
using Mac = std::array<std::uint8_t, 32>;

/// 32 secret bytes. The object wipes them when it ends. All calls from any thread.
class Key {
   public:
    static constexpr std::size_t kBytes = 32;

    /// From the system's random generator.
    [[nodiscard]] static Key random();
    /// From 64 hexadecimal digits, as `hex` writes them.
    [[nodiscard]] static std::optional<Key> from_hex(std::string_view text);

    /// From a secret in words or digits that somebody else made, such as random_text(). Nothing if
    /// it is shorter than that.
    [[nodiscard]] static std::optional<Key> from_secret(std::string_view text);

    Key(const Key&) = default;
    Key& operator=(const Key&) = default;
    ~Key();

    [[nodiscard]] std::string hex() const;

    /// Another key, one for each `purpose`, from which this one cannot be found.
    [[nodiscard]] Key derive(std::string_view purpose) const;
    [[nodiscard]] Mac mac(std::string_view message) const;
    /// Compares in constant time.
    [[nodiscard]] bool verifies(std::string_view message, const Mac& mac) const;

    [[nodiscard]] const std::array<std::uint8_t, kBytes>& bytes() const noexcept { return bytes_; }
    friend bool operator==(const Key& a, const Key& b) noexcept;

   private:
    Key() = default;

    std::array<std::uint8_t, kBytes> bytes_{};
};

/// 128 bits from the system's random generator, as 22 letters, digits, '-' and '_'.
[[nodiscard]] std::string random_text();
[[nodiscard]] std::uint64_t random_number();

}  // namespace regroup::security
