// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/snapshot/pieces.h"

#include <algorithm>
#include <bit>
#include <cstring>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace regroup::snapshot {

namespace {

static_assert(std::endian::native == std::endian::little);

// A block is read twice, the second time from the first-level cache, while the block after the next
// one comes from memory: so both passes take hardly longer than a plain copy.
constexpr std::size_t kBlockBytes = 4096;

#if defined(__SSE2__)
constexpr std::size_t kLineBytes = 64;

/// Copies without reading `to` into the caches first, which a plain copy of one block does. Behind
/// `from` there are `more` bytes that are copied next.
void stream_block(std::byte* to, const std::byte* from, std::size_t bytes,
                  std::size_t more) noexcept {
    const std::size_t ahead = std::min(2 * kBlockBytes, more);
    const std::size_t misaligned = reinterpret_cast<std::uintptr_t>(to) % kLineBytes;
    const std::size_t head = misaligned == 0 ? 0 : std::min(bytes, kLineBytes - misaligned);
    std::memcpy(to, from, head);
    std::size_t at = head;
    for (; at + kLineBytes <= bytes; at += kLineBytes) {
        _mm_prefetch(reinterpret_cast<const char*>(from + at + ahead), _MM_HINT_T0);
        const auto* source = reinterpret_cast<const __m128i*>(from + at);
        auto* target = reinterpret_cast<__m128i*>(to + at);
        const __m128i a = _mm_loadu_si128(source);
        const __m128i b = _mm_loadu_si128(source + 1);
        const __m128i c = _mm_loadu_si128(source + 2);
        const __m128i d = _mm_loadu_si128(source + 3);
        _mm_stream_si128(target, a);
        _mm_stream_si128(target + 1, b);
        _mm_stream_si128(target + 2, c);
        _mm_stream_si128(target + 3, d);
    }
    std::memcpy(to + at, from + at, bytes - at);
}
void end_stream() noexcept {
    _mm_sfence();
}
#else
void stream_block(std::byte* to, const std::byte* from, std::size_t bytes,
                  std::size_t /*more*/) noexcept {
    std::memcpy(to, from, bytes);
}
void end_stream() noexcept {}
#endif

}  // namespace

std::uint64_t hash_of_piece(std::span<const std::byte> piece) noexcept {
    return XXH3_64bits(piece.data(), piece.size());
}

std::uint64_t copy_piece(std::span<std::byte> to, std::span<const std::byte> from) noexcept {
    XXH3_state_t state;
    XXH3_64bits_reset(&state);
    for (std::size_t at = 0; at < from.size(); at += kBlockBytes) {
        const std::size_t bytes = std::min(kBlockBytes, from.size() - at);
        // First the hash: it brings the block into the cache. If another thread changes the block
        // meanwhile, the hash is wrong, and so the copy counts as damaged.
        XXH3_64bits_update(&state, from.data() + at, bytes);
        stream_block(to.data() + at, from.data() + at, bytes, from.size() - at - bytes);
    }
    end_stream();
    return XXH3_64bits_digest(&state);
}

std::uint64_t hash_of_pieces(std::span<const std::uint64_t> hashes) noexcept {
    return XXH3_64bits(hashes.data(), hashes.size_bytes());
}

std::uint64_t hash_of_tensor(std::span<const std::byte> bytes) {
    std::vector<std::uint64_t> hashes;
    hashes.reserve(pieces_count(bytes.size()));
    for (std::size_t at = 0; at < bytes.size(); at += kPieceBytes) {
        hashes.push_back(
            hash_of_piece(bytes.subspan(at, std::min(kPieceBytes, bytes.size() - at))));
    }
    return hash_of_pieces(hashes);
}

}  // namespace regroup::snapshot
