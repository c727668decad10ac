// SPDX-License-Identifier: Apache-2.0
//
// Hashes of tensors. A tensor is hashed in pieces of kPieceBytes, so that several threads can share
// the work; its hash is that of the hashes of its pieces.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

namespace regroup::snapshot {

/// The last piece of a tensor may be smaller; a tensor without bytes has none.
inline constexpr std::size_t kPieceBytes = std::size_t{4} << 20U;

/// XXH3 with 64 bits.
[[nodiscard]] std::uint64_t hash_of_piece(std::span<const std::byte> piece) noexcept;
/// Copies `from` to `to`, which has as many bytes and does not overlap it, and returns the hash of
/// what was copied. Reads each byte of `from` once, and leaves `to` out of the caches.
[[nodiscard]] std::uint64_t copy_piece(std::span<std::byte> to,
                                       std::span<const std::byte> from) noexcept;

/// The hash of a tensor: XXH3 of the hashes of its pieces in order, each in 8 bytes, the least
/// significant first.
[[nodiscard]] std::uint64_t hash_of_pieces(std::span<const std::uint64_t> hashes) noexcept;
/// The same, from the bytes of the tensor.
[[nodiscard]] std::uint64_t hash_of_tensor(std::span<const std::byte> bytes);

[[nodiscard]] constexpr std::size_t pieces_count(std::size_t bytes) noexcept {
    return (bytes + kPieceBytes - 1) / kPieceBytes;
}

}  // namespace regroup::snapshot
