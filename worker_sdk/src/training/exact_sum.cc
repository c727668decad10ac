// SPDX-License-Identifier: Apache-2.0
#include <regroup/exact_sum.h>

#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <vector>

namespace regroup {
namespace {

constexpr std::uint64_t kDigitMask = 0xffffffffU;
constexpr int kDigitBits = 32;
constexpr int kLowestExponent = -1074;
constexpr int kMantissaBits = 53;

enum Special : std::size_t { not_a_number, positive_infinity, negative_infinity };

/// Brings every digit but the last into [0, 2^32); the last carries the sign.
template <class Digits>
void carry_digits(Digits& digits) noexcept {
    for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
        digits[i + 1] += digits[i] >> kDigitBits;
        digits[i] &= static_cast<std::int64_t>(kDigitMask);
    }
}

}  // namespace

void ExactSum::add(double value) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const bool is_negative = bits >> 63U != 0;
    const std::uint64_t exponent = (bits >> 52U) & 0x7ffU;
    std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52U) - 1);
    if (exponent == 0x7ffU) {
        const std::size_t infinity = is_negative ? negative_infinity : positive_infinity;
        ++state_.specials[mantissa != 0 ? not_a_number : infinity];
        return;
    }
    mantissa |= exponent == 0 ? 0 : std::uint64_t{1} << 52U;
    // Normal numbers begin where subnormal ones do, one exponent later.
    const std::uint64_t lowest_bit = exponent == 0 ? 0 : exponent - 1;
    const std::size_t digit = lowest_bit / kDigitBits;
    const std::uint64_t shift = lowest_bit % kDigitBits;
    const std::uint64_t low = (mantissa & kDigitMask) << shift;
    const std::uint64_t high = (mantissa >> 32U) << shift;
    const std::int64_t sign = is_negative ? -1 : 1;
    state_.digits[digit] += sign * static_cast<std::int64_t>(low & kDigitMask);
    state_.digits[digit + 1] +=
        sign * static_cast<std::int64_t>((low >> 32U) + (high & kDigitMask));
    state_.digits[digit + 2] += sign * static_cast<std::int64_t>(high >> 32U);
    if (++adds_ == kAddsMax) {
        carry();
    }
}

void ExactSum::add(const ExactSum& other) noexcept {
    ExactSum carried = other;
    carried.carry();
    for (std::size_t i = 0; i < kDigitCount; ++i) {
        state_.digits[i] += carried.state_.digits[i];
    }
    for (std::size_t i = 0; i < state_.specials.size(); ++i) {
        state_.specials[i] += carried.state_.specials[i];
    }
    carry();
}

void ExactSum::carry() noexcept {
    carry_digits(state_.digits);
    adds_ = 0;
}

double ExactSum::value() const noexcept {
    const auto& specials = state_.specials;
    if (specials[not_a_number] != 0 ||
        (specials[positive_infinity] != 0 && specials[negative_infinity] != 0)) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    if (specials[positive_infinity] != 0 || specials[negative_infinity] != 0) {
        const double infinity = std::numeric_limits<double>::infinity();
        return specials[positive_infinity] != 0 ? infinity : -infinity;
    }
    auto digits = state_.digits;
    carry_digits(digits);
    const bool is_negative = digits.back() < 0;
    if (is_negative) {
        for (std::int64_t& digit : digits) {
            digit = -digit;
        }
        carry_digits(digits);
    }
    std::size_t top = kDigitCount;
    while (top > 0 && digits[top - 1] == 0) {
        --top;
    }
    if (top == 0) {
        return 0.0;
    }
    const auto bit = [&digits](int place) {
        return static_cast<std::uint64_t>(digits[static_cast<std::size_t>(place / kDigitBits)]) >>
                   (place % kDigitBits) &
               1U;
    };
    const int bits_count =
        static_cast<int>(top - 1) * kDigitBits +
        static_cast<int>(std::bit_width(static_cast<std::uint64_t>(digits[top - 1])));
    const int cut = bits_count > kMantissaBits ? bits_count - kMantissaBits : 0;
    std::uint64_t mantissa = 0;
    for (int place = bits_count; place-- > cut;) {
        mantissa = mantissa << 1U | bit(place);
    }
    if (cut > 0 && bit(cut - 1) != 0) {
        bool is_tie = true;
        for (int place = 0; place < cut - 1 && is_tie; ++place) {
            is_tie = bit(place) == 0;
        }
        mantissa += !is_tie || (mantissa & 1U) != 0 ? 1 : 0;
    }
    const double magnitude = std::ldexp(static_cast<double>(mantissa), cut + kLowestExponent);
    return is_negative ? -magnitude : magnitude;
}

void sum_over_ranks(ProcessGroup& group, std::span<ExactSum> sums) {
    constexpr std::size_t kStateCount = sizeof(ExactSum::State) / sizeof(std::int64_t);
    std::vector<std::int64_t> states(sums.size() * kStateCount);
    for (std::size_t i = 0; i < sums.size(); ++i) {
        // Small digits leave room for those of any number of ranks.
        sums[i].carry();
        std::memcpy(&states[i * kStateCount], &sums[i].state_, sizeof(ExactSum::State));
    }
    group.all_reduce(std::span(states), ReduceOp::sum).wait();
    for (std::size_t i = 0; i < sums.size(); ++i) {
        std::memcpy(&sums[i].state_, &states[i * kStateCount], sizeof(ExactSum::State));
        sums[i].carry();
    }
}

}  // namespace regroup
