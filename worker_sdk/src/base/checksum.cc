// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/checksum.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace regroup {

std::uint64_t checksum(std::string_view bytes) noexcept {
    return XXH3_64bits(bytes.data(), bytes.size());
}

std::uint64_t checksum(std::span<const std::uint64_t> words) noexcept {
    return XXH3_64bits(words.data(), words.size_bytes());
}

struct Checksum::State {
    XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
    XXH3_64bits_reset(&state_->xxh3);
}

Checksum::~Checksum() = default;

void Checksum::add(std::string_view bytes) noexcept {
    XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

void Checksum::add(std::span<const std::byte> bytes) noexcept {
    XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size());
}

std::uint64_t Checksum::value() const noexcept {
    return XXH3_64bits_digest(&state_->xxh3);
}

}  // namespace regroup
