// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/copy.h"

#include <cstring>

// Sanitizers check what memcpy accesses, but not the loads and stores of vectors.
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define REGROUP_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer) || \
    __has_feature(memory_sanitizer)
#define REGROUP_SANITIZED 1
#endif
#endif

#if defined(__x86_64__) && !defined(REGROUP_SANITIZED)
#define REGROUP_COPIES_VECTORS 1
#include <cstdint>
#include <immintrin.h>
#endif

namespace regroup {

#ifdef REGROUP_COPIES_VECTORS
namespace {

/// Every memcpy of glibc copies less than this with vectors.
constexpr std::size_t kVectorsMin = 2048;
constexpr std::size_t kLine = 64;
constexpr std::size_t kPage = 4096;
constexpr std::size_t kAhead = 512;

/// No wider vectors: those of AVX-512 copy no faster. Processors without AVX have no fast memcpy by
/// `rep movsb` either, so that glibc does not use it there.
bool has_avx() noexcept {
    static const bool has = __builtin_cpu_supports("avx") != 0;
    return has;
}

/// `rep movsb` is fast there, and up to an eighth faster than vectors.
bool is_of_intel() noexcept {
    static const bool is = __builtin_cpu_is("intel") != 0;
    return is;
}

[[gnu::target("avx")]] inline __m256i load(const std::byte* from) {
    return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
}

[[gnu::target("avx")]] inline void store(std::byte* to, __m256i vector) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(to), vector);
}

/// `bytes` is kVectorsMin at least.
[[gnu::target("avx")]] void copy_by_vectors(std::byte* to, const std::byte* from,
                                            std::size_t bytes) {
    constexpr std::size_t kVector = sizeof(__m256i);
    constexpr std::size_t kStride = 4 * kVector;
    // The ends overlap with what the loop copies, since its stores are aligned.
    const __m256i first = load(from);
    const __m256i last = load(from + bytes - kVector);
    std::byte* const end = to + bytes - kVector;
    std::byte* const begin = to;
    const std::size_t skipped = kVector - reinterpret_cast<std::uintptr_t>(to) % kVector;
    to += skipped;
    from += skipped;
    for (; to + kStride <= end; to += kStride, from += kStride) {
        const __m256i a = load(from);
        const __m256i b = load(from + kVector);
        const __m256i c = load(from + 2 * kVector);
        const __m256i d = load(from + 3 * kVector);
        store(to, a);
        store(to + kVector, b);
        store(to + 2 * kVector, c);
        store(to + 3 * kVector, d);
    }
    for (; to < end; to += kVector, from += kVector) {
        store(to, load(from));
    }
    store(begin, first);
    store(end, last);
}

[[gnu::target("avx")]] inline void stream_line(std::byte* to, const std::byte* from) {
    const __m256i first = load(from);
    const __m256i second = load(from + sizeof first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to), first);
    _mm256_stream_si256(reinterpret_cast<__m256i*>(to + sizeof first), second);
}

/// Goes past the caches. Two pages at a time, which keeps more of the memory busy.
[[gnu::target("avx")]] void copy_streamed(std::byte* to, const std::byte* from, std::size_t bytes) {
    const std::size_t skipped = kLine - reinterpret_cast<std::uintptr_t>(to) % kLine;
    std::memcpy(to, from, skipped);
    to += skipped;
    from += skipped;
    bytes -= skipped;
    for (; bytes >= 2 * kPage; bytes -= 2 * kPage, to += 2 * kPage, from += 2 * kPage) {
        for (std::size_t at = 0; at < kPage; at += kLine) {
            _mm_prefetch(reinterpret_cast<const char*>(from + at + kAhead), _MM_HINT_T0);
            _mm_prefetch(reinterpret_cast<const char*>(from + kPage + at + kAhead), _MM_HINT_T0);
            stream_line(to + at, from + at);
            stream_line(to + kPage + at, from + kPage + at);
        }
    }
    _mm_sfence();
    if (bytes >= kVectorsMin) {
        copy_by_vectors(to, from, bytes);
    } else {
        std::memcpy(to, from, bytes);
    }
}

}  // namespace

void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes == 0 || to == from) {
        return;
    }
    auto* const out = static_cast<std::byte*>(to);
    const auto* const in = static_cast<const std::byte*>(from);
    if (bytes < kVectorsMin || !has_avx()) {
        std::memcpy(to, from, bytes);
    } else if (bytes >= kStreamedBytes) {
        copy_streamed(out, in, bytes);
    } else if (is_of_intel()) {
        std::memcpy(to, from, bytes);
    } else {
        copy_by_vectors(out, in, bytes);
    }
}

#else

void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept {
    if (bytes > 0 && to != from) {
        std::memcpy(to, from, bytes);
    }
}

#endif

}  // namespace regroup
