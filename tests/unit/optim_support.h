// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/error.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace regroup::testing {

/// Values between -range and range.
inline std::vector<float> random_values(std::size_t count, std::uint64_t seed, float range = 1.0F) {
    std::mt19937_64 random(seed);
    std::vector<float> values(count);
    for (float& value : values) {
        value = range * (2.0F * static_cast<float>(random() >> 40U) * 0x1.0p-24F - 1.0F);
    }
    return values;
}

/// The sentence of the Error about an invalid argument that `action` throws.
inline std::string complaint(const std::function<void()>& action) {
    try {
        action();
    } catch (const Error& error) {
        EXPECT_EQ(error.code(), Errc::invalid_argument);
        return error.what();
    }
    return "no complaint";
}

}  // namespace regroup::testing
