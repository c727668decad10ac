// SPDX-License-Identifier: Apache-2.0
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/base/copy.h"

namespace regroup {
namespace {

constexpr std::size_t kRoom = 256;

std::vector<std::uint8_t> pattern(std::size_t bytes) {
    std::vector<std::uint8_t> values(bytes);
    std::uint32_t state = 1;
    for (std::uint8_t& value : values) {
        state = state * 1664525U + 1013904223U;
        value = static_cast<std::uint8_t>(state >> 24U);
    }
    return values;
}

/// Copies between these distances from the begin of aligned memory.
void expect_copied(const std::vector<std::uint8_t>& source, std::size_t bytes, std::size_t to,
                   std::size_t from) {
    std::vector<std::uint8_t> target(bytes + kRoom, 0xaa);
    copy_bytes(target.data() + to, source.data() + from, bytes);
    ASSERT_EQ(std::memcmp(target.data() + to, source.data() + from, bytes), 0)
        << bytes << " bytes to " << to << " from " << from;
    for (std::size_t i = 0; i < target.size(); ++i) {
        if (i < to || i >= to + bytes) {
            ASSERT_EQ(target[i], 0xaa) << bytes << " bytes to " << to << ", changed at " << i;
        }
    }
}

TEST(CopyBytes, AllBytesAndNoOthersAreWritten) {
    const std::vector<std::uint8_t> source = pattern(40'000 + kRoom);
    for (std::size_t bytes = 0; bytes < 300; ++bytes) {
        expect_copied(source, bytes, bytes % 7, bytes % 5);
        expect_copied(source, 2048 - 150 + bytes, bytes % 67, bytes % 33);
        expect_copied(source, 4096 + bytes, bytes % 131, bytes % 64);
        expect_copied(source, 32'768 + bytes, 0, bytes % 3);
    }
}

TEST(CopyBytes, LargeCopiesAreCopiedPastTheCaches) {
    const std::vector<std::uint8_t> source = pattern(kStreamedBytes + 20'000 + kRoom);
    for (const std::size_t bytes :
         {kStreamedBytes - 1, kStreamedBytes, kStreamedBytes + 63, kStreamedBytes + 8'191,
          kStreamedBytes + 8'192, kStreamedBytes + 12'345}) {
        for (const std::size_t to : {0U, 1U, 63U, 64U, 65U}) {
            expect_copied(source, bytes, to, to / 2);
        }
    }
}

TEST(CopyBytes, NothingAndTheSameMemoryMayBeCopied) {
    copy_bytes(nullptr, nullptr, 0);
    std::vector<std::uint8_t> values = pattern(5000);
    const std::vector<std::uint8_t> before = values;
    copy_bytes(values.data(), values.data(), values.size());
    EXPECT_EQ(values, before);
}

}  // namespace
}  // namespace regroup
