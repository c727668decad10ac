// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstring>
#include <span>
#include <type_traits>

namespace regroup::net {

// The wire format between ranks equals the layout in memory: the ranks of one group run the same
// program on machines of one kind. On any other machine the magic number does not match.
static_assert(std::endian::native == std::endian::little);

template <class T>
concept WireStruct = std::is_trivially_copyable_v<T> && std::has_unique_object_representations_v<T>;

template <WireStruct T>
std::span<const std::byte> bytes_of(const T& value) {
    return std::as_bytes(std::span(&value, 1));
}

/// A wire struct that arrives in pieces.
template <WireStruct T>
class Partial {
   public:
    [[nodiscard]] bool complete() const noexcept { return have_ == sizeof(T); }
    [[nodiscard]] bool started() const noexcept { return have_ != 0; }
    /// Requires `complete()`.
    [[nodiscard]] T value() const noexcept {
        T result;
        std::memcpy(&result, bytes_.data(), sizeof result);
        return result;
    }
    /// Where the next bytes go; tell `filled` how many came.
    [[nodiscard]] std::span<std::byte> space() noexcept { return std::span(bytes_).subspan(have_); }
    void filled(std::size_t count) noexcept { have_ += count; }
    void reset() noexcept { have_ = 0; }

   private:
    std::array<std::byte, sizeof(T)> bytes_{};
    std::size_t have_ = 0;
};

}  // namespace regroup::net
