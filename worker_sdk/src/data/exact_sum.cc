// SPDX-License-Identifier: Apache-2.0
#include <regroup/cuda.h>
#include <regroup/exact_sum.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <functional>
#include <limits>
#include <vector>

namespace regroup {
namespace {

constexpr std::uint64_t kDigitMask = 0xffffffffU;
constexpr int kDigitBits = 32;
constexpr int kLowestExponent = -1074;
constexpr int kMantissaBits = 53;

/// The counters after the digits.
enum Special : std::size_t { not_a_number, positive_infinity, negative_infinity };

/// Brings every digit but the last into [0, 2^32); the last carries the sign.
void carry_digits(std::span<std::int64_t> digits) noexcept {
    for (std::size_t i = 0; i + 1 < digits.size(); ++i) {
        digits[i + 1] += digits[i] >> kDigitBits;
        digits[i] &= static_cast<std::int64_t>(kDigitMask);
    }
}

/// The nearest double to a positive number, given by its digits, of which the last is not 0.
double rounded(std::span<const std::int64_t> digits) noexcept {
    const auto bit = [&digits](int place) {
        return static_cast<std::uint64_t>(digits[static_cast<std::size_t>(place / kDigitBits)]) >>
                   (place % kDigitBits) &
               1U;
    };
    const int bit_count =
        static_cast<int>(digits.size() - 1) * kDigitBits +
        static_cast<int>(std::bit_width(static_cast<std::uint64_t>(digits.back())));
    const int cut = bit_count > kMantissaBits ? bit_count - kMantissaBits : 0;
    std::uint64_t mantissa = 0;
    for (int place = bit_count; place-- > cut;) {
        mantissa = mantissa << 1U | bit(place);
    }
    if (cut > 0 && bit(cut - 1) != 0) {
        bool is_tie = true;
        for (int place = 0; place < cut - 1 && is_tie; ++place) {
            is_tie = bit(place) == 0;
        }
        mantissa += !is_tie || (mantissa & 1U) != 0 ? 1 : 0;
    }
    return std::ldexp(static_cast<double>(mantissa), cut + kLowestExponent);
}

}  // namespace

void ExactSum::add(double value) noexcept {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    const bool is_negative = bits >> 63U != 0;
    const std::uint64_t exponent = (bits >> 52U) & 0x7ffU;
    std::uint64_t mantissa = bits & ((std::uint64_t{1} << 52U) - 1);
    if (exponent == 0x7ffU) {
        const std::size_t infinity = is_negative ? negative_infinity : positive_infinity;
        ++state_[kDigitCount + (mantissa != 0 ? not_a_number : infinity)];
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
    state_[digit] += sign * static_cast<std::int64_t>(low & kDigitMask);
    state_[digit + 1] += sign * static_cast<std::int64_t>((low >> 32U) + (high & kDigitMask));
    state_[digit + 2] += sign * static_cast<std::int64_t>(high >> 32U);
    if (++adds_ == kAddsMax) {
        carry();
    }
}

void ExactSum::add(const ExactSum& other) noexcept {
    ExactSum carried = other;
    carried.carry();
    carry();
    for (std::size_t i = 0; i < state_.size(); ++i) {
        state_[i] += carried.state_[i];
    }
    carry();
}

void ExactSum::carry() noexcept {
    carry_digits(std::span(state_).first(kDigitCount));
    adds_ = 0;
}

double ExactSum::value() const noexcept {
    const auto specials = std::span(state_).last(state_.size() - kDigitCount);
    if (specials[not_a_number] != 0 ||
        (specials[positive_infinity] != 0 && specials[negative_infinity] != 0)) {
        return std::numeric_limits<double>::quiet_NaN();
    }
    if (specials[positive_infinity] != 0 || specials[negative_infinity] != 0) {
        const double infinity = std::numeric_limits<double>::infinity();
        return specials[positive_infinity] != 0 ? infinity : -infinity;
    }
    std::array<std::int64_t, kDigitCount> digits{};
    std::copy_n(state_.begin(), kDigitCount, digits.begin());
    carry_digits(digits);
    const bool is_negative = digits.back() < 0;
    if (is_negative) {
        std::ranges::transform(digits, digits.begin(), std::negate());
        carry_digits(digits);
    }
    const auto top =
        std::find_if(digits.rbegin(), digits.rend(), [](std::int64_t digit) { return digit != 0; });
    if (top == digits.rend()) {
        return 0.0;
    }
    const double magnitude =
        rounded(std::span(digits).first(static_cast<std::size_t>(digits.rend() - top)));
    return is_negative ? -magnitude : magnitude;
}

namespace {

/// By way of the group's device, if that is a GPU.
void all_reduce_from_host(ProcessGroup& group, std::span<std::int64_t> numbers) {
    if (group.device().kind == DeviceKind::cpu) {
        group.all_reduce(numbers, ReduceOp::sum).wait();
        return;
    }
    const Buffer buffer = cuda::allocate(group.device(), numbers.size_bytes());
    const TensorView staged(buffer.data, numbers.size(), DType::int64, buffer.device);
    cuda::copy(staged, numbers);
    group.all_reduce(staged, ReduceOp::sum).wait();
    cuda::copy(numbers, staged);
}

}  // namespace

void sum_over_ranks(ProcessGroup& group, std::span<ExactSum> sums) {
    std::vector<std::int64_t> states;
    for (ExactSum& sum : sums) {
        // Small digits leave room for those of any number of ranks.
        sum.carry();
        states.insert(states.end(), sum.state_.begin(), sum.state_.end());
    }
    all_reduce_from_host(group, std::span(states));
    auto next = states.cbegin();
    for (ExactSum& sum : sums) {
        const auto end = next + static_cast<std::ptrdiff_t>(sum.state_.size());
        std::copy(next, end, sum.state_.begin());
        sum.carry();
        next = end;
    }
}

}  // namespace regroup
