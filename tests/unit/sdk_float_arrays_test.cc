// SPDX-License-Identifier: Apache-2.0
#include <regroup/low_precision.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/base/float_arrays.h"

namespace regroup {
namespace {

std::vector<std::uint16_t> all_words() {
    std::vector<std::uint16_t> words(1U << 16U);
    for (std::size_t i = 0; i < words.size(); ++i) {
        words[i] = static_cast<std::uint16_t>(i);
    }
    return words;
}

// All at once goes through the processor's own instructions, where it has them; so few that they
// fill no register go through the portable code.
const std::array<std::size_t, 2> kSlices = {std::size_t{1} << 30U, 7};

template <class Low>
void expect_widened_exactly(DType dtype, std::size_t slice) {
    const std::vector<std::uint16_t> words = all_words();
    std::vector<float> wide(words.size());
    for (std::size_t first = 0; first < words.size(); first += slice) {
        const std::size_t count = std::min(slice, words.size() - first);
        widen(dtype, words.data() + first, wide.data() + first, count);
    }
    for (std::size_t i = 0; i < words.size(); ++i) {
        Low low;
        low.bits = words[i];
        const auto expected = std::bit_cast<std::uint32_t>(static_cast<float>(low));
        if (std::isnan(static_cast<float>(low))) {
            ASSERT_TRUE(std::isnan(wide[i])) << "bits " << words[i];
        } else {
            ASSERT_EQ(std::bit_cast<std::uint32_t>(wide[i]), expected) << "bits " << words[i];
        }
    }
}

TEST(FloatArrays, EveryValueIsWidenedExactly) {
    for (const std::size_t slice : kSlices) {
        expect_widened_exactly<float16>(DType::float16, slice);
        expect_widened_exactly<bfloat16>(DType::bfloat16, slice);
    }
}

// Floats over the whole range, and around every value of the format: itself, halfway to the next,
// and one bit to either side.
std::vector<float> telling_floats(DType dtype) {
    const std::vector<std::uint16_t> words = all_words();
    std::vector<float> values(words.size());
    widen(dtype, words.data(), values.data(), words.size());
    const std::size_t count = values.size();
    for (std::size_t i = 0; i + 1 < count; ++i) {
        const float middle = 0.5F * values[i] + 0.5F * values[i + 1];
        for (const float value : {values[i], middle}) {
            const auto bits = std::bit_cast<std::uint32_t>(value);
            values.insert(values.end(), {value, std::bit_cast<float>(bits + 1U),
                                         std::bit_cast<float>(bits - 1U)});
        }
    }
    for (std::uint64_t bits = 0; bits < (std::uint64_t{1} << 32U); bits += 9973) {
        values.push_back(std::bit_cast<float>(static_cast<std::uint32_t>(bits)));
    }
    return values;
}

template <class Low>
void expect_rounded_to_nearest(DType dtype, std::size_t slice) {
    const std::vector<float> values = telling_floats(dtype);
    std::vector<std::uint16_t> low(values.size());
    for (std::size_t first = 0; first < values.size(); first += slice) {
        const std::size_t count = std::min(slice, values.size() - first);
        narrow(dtype, values.data() + first, low.data() + first, count);
    }
    for (std::size_t i = 0; i < values.size(); ++i) {
        Low rounded;
        rounded.bits = low[i];
        if (std::isnan(values[i])) {
            ASSERT_TRUE(std::isnan(static_cast<float>(rounded)));
        } else {
            ASSERT_EQ(rounded, Low(values[i]))
                << "of float bits " << std::bit_cast<std::uint32_t>(values[i]);
        }
    }
}

TEST(FloatArrays, RoundingEqualsThatOfTheStorageTypes) {
    for (const std::size_t slice : kSlices) {
        expect_rounded_to_nearest<float16>(DType::float16, slice);
        expect_rounded_to_nearest<bfloat16>(DType::bfloat16, slice);
    }
}

template <class T>
void expect_overflow_found_everywhere(DType dtype, T largest) {
    const float infinity = std::numeric_limits<float>::infinity();
    for (const std::size_t count : {1U, 7U, 5000U}) {
        std::vector<T> values(count, largest);
        EXPECT_TRUE(all_finite(dtype, values.data(), count));
        for (const std::size_t at : {std::size_t{0}, count / 2, count - 1}) {
            for (const float bad : {infinity, -infinity, std::nanf("")}) {
                values[at] = T(bad);
                EXPECT_FALSE(all_finite(dtype, values.data(), count)) << at << " of " << count;
                values[at] = largest;
            }
        }
    }
    EXPECT_TRUE(all_finite(dtype, nullptr, 0));
}

TEST(FloatArrays, InfAndNanAreFoundAtEveryPosition) {
    expect_overflow_found_everywhere(DType::float32, std::numeric_limits<float>::lowest());
    expect_overflow_found_everywhere(DType::float16, float16(-65504.0F));
    expect_overflow_found_everywhere(DType::bfloat16, bfloat16(-3.38e38F));
}

// Of a processor with an instruction for a * b + c, too, and of the options of every source here.
TEST(FloatArithmetic, ProductIsRoundedBeforeItIsAdded) {
    volatile double near_one = 1 + 0x1p-30;
    const double factor = near_one;
    EXPECT_EQ(factor * factor - (1 + 0x1p-29), 0);
}

}  // namespace
}  // namespace regroup
