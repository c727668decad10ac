// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>

namespace regroup {

/// XXH3 with 64 bits: the same on every machine, unlike std::hash. Finds accidents, not forgeries.
[[nodiscard]] std::uint64_t checksum(std::string_view bytes) noexcept;
[[nodiscard]] std::uint64_t checksum(std::span<const std::uint64_t> words) noexcept;

/// The same for bytes that arrive in pieces. One thread.
class Checksum {
   public:
    Checksum();
    ~Checksum();
    Checksum(const Checksum&) = delete;
    Checksum& operator=(const Checksum&) = delete;

    void add(std::string_view bytes) noexcept;
    void add(std::span<const std::byte> bytes) noexcept;
    [[nodiscard]] std::uint64_t value() const noexcept;

   private:
    struct State;
    const std::unique_ptr<State> state_;
};

}  // namespace regroup
