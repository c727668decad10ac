// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/data/python_random.h"

#include <bit>
#include <utility>

namespace regroup::data {

// The constants are those of MT19937 and of its initialisation by an array (Matsumoto and
// Nishimura, 2002).
PythonRandom::PythonRandom(std::uint64_t seed) noexcept {
    const auto spread = [](std::uint32_t previous, std::uint32_t factor) {
        return (previous ^ (previous >> 30U)) * factor;
    };
    constexpr std::uint32_t kCount = kStateCount;
    state_[0] = 19650218U;
    for (std::uint32_t i = 1; i < kCount; ++i) {
        state_[i] = spread(state_[i - 1], 1812433253U) + i;
    }
    const std::array<std::uint32_t, 2> key{static_cast<std::uint32_t>(seed),
                                           static_cast<std::uint32_t>(seed >> 32U)};
    const std::uint32_t key_count = key[1] == 0 ? 1 : 2;
    std::uint32_t i = 1;
    const auto advance = [&] {
        if (++i == kCount) {
            state_[0] = state_[kCount - 1];
            i = 1;
        }
    };
    for (std::uint32_t round = 0; round < kCount; ++round, advance()) {
        const std::uint32_t j = round % key_count;
        state_[i] = (state_[i] ^ spread(state_[i - 1], 1664525U)) + key[j] + j;
    }
    for (std::uint32_t round = 1; round < kCount; ++round, advance()) {
        state_[i] = (state_[i] ^ spread(state_[i - 1], 1566083941U)) - i;
    }
    state_[0] = 0x80000000U;
}

void PythonRandom::refill() noexcept {
    constexpr std::size_t kMiddle = 397;
    for (std::size_t i = 0; i < kStateCount; ++i) {
        const std::uint32_t joined =
            (state_[i] & 0x80000000U) | (state_[(i + 1) % kStateCount] & 0x7fffffffU);
        state_[i] = state_[(i + kMiddle) % kStateCount] ^ (joined >> 1U) ^
                    ((joined & 1U) != 0 ? 0x9908b0dfU : 0U);
    }
    used_ = 0;
}

std::uint32_t PythonRandom::next() noexcept {
    if (used_ == kStateCount) {
        refill();
    }
    std::uint32_t value = state_[used_++];
    value ^= value >> 11U;
    value ^= (value << 7U) & 0x9d2c5680U;
    value ^= (value << 15U) & 0xefc60000U;
    return value ^ (value >> 18U);
}

std::uint64_t PythonRandom::bits(int count) noexcept {
    if (count <= 32) {
        return next() >> (32 - count);
    }
    const std::uint64_t low = next();
    return low | std::uint64_t{next() >> (64 - count)} << 32U;
}

std::uint64_t PythonRandom::below(std::uint64_t bound) noexcept {
    const int width = static_cast<int>(std::bit_width(bound));
    std::uint64_t value = bits(width);
    while (value >= bound) {
        value = bits(width);
    }
    return value;
}

void PythonRandom::shuffle(std::span<std::uint64_t> values) noexcept {
    for (std::size_t i = values.size(); i > 1; --i) {
        std::swap(values[i - 1], values[below(i)]);
    }
}

}  // namespace regroup::data
