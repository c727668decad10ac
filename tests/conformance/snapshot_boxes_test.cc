// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include <gtest/gtest.h>

#include "worker_sdk/src/snapshot/boxes.h"

namespace regroup::snapshot {
namespace {

std::uint64_t elements_of(const Box& box) {
    std::uint64_t count = 1;
    for (std::size_t i = 0; i < box.begin.size(); ++i) {
        count *= box.end[i] - box.begin[i];
    }
    return count;
}

Box random_box(const std::vector<std::uint64_t>& shape, std::mt19937& random) {
    Box box;
    for (const std::uint64_t size : shape) {
        const std::uint64_t begin = random() % size;
        box.begin.push_back(begin);
        box.end.push_back(begin + 1 + random() % (size - begin));
    }
    return box;
}

/// The numbers of the elements of a box in the whole tensor.
std::vector<std::uint32_t> numbers_of(const Box& box, const std::vector<std::uint64_t>& shape) {
    std::vector<std::uint32_t> numbers;
    std::vector<std::uint64_t> place = box.begin;
    for (std::uint64_t n = elements_of(box); n > 0; --n) {
        std::uint64_t number = 0;
        for (std::size_t i = 0; i < shape.size(); ++i) {
            number = number * shape[i] + place[i];
        }
        numbers.push_back(static_cast<std::uint32_t>(number));
        for (std::size_t i = shape.size(); i-- > 0;) {
            if (++place[i] < box.end[i]) {
                break;
            }
            place[i] = box.begin[i];
        }
    }
    return numbers;
}

TEST(SnapshotBoxes, CommonPartIsCopiedBetweenAnyTwoBoxes) {
    std::mt19937 random(1);
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::uint64_t> shape(random() % 5);
        std::ranges::generate(shape, [&] { return 1 + random() % 4; });
        const Box from = random_box(shape, random);
        const Box to = random_box(shape, random);
        const auto common = intersection(from, to);
        if (!common) {
            continue;
        }
        const std::vector<std::uint32_t> source = numbers_of(from, shape);
        std::vector<std::uint32_t> target(elements_of(to), 1'000'000);
        copy_box(*common, {to, reinterpret_cast<std::byte*>(target.data())},
                 {from, reinterpret_cast<const std::byte*>(source.data())}, 4);
        const std::vector<std::uint32_t> all = numbers_of(to, shape);
        const std::vector<std::uint32_t> copied = numbers_of(*common, shape);
        for (std::size_t i = 0; i < all.size(); ++i) {
            const bool is_common = std::ranges::count(copied, all[i]) > 0;
            ASSERT_EQ(target[i], is_common ? all[i] : 1'000'000);
        }
    }
}

TEST(SnapshotBoxes, DifferenceHasEachOtherElementOnce) {
    std::mt19937 random(2);
    for (int round = 0; round < 2000; ++round) {
        std::vector<std::uint64_t> shape(random() % 5);
        std::ranges::generate(shape, [&] { return 1 + random() % 4; });
        const Box from = random_box(shape, random);
        const auto part = intersection(from, random_box(shape, random));
        if (!part) {
            continue;
        }
        std::vector<std::uint32_t> found = numbers_of(*part, shape);
        for (const Box& box : difference(from, *part)) {
            ASSERT_FALSE(box.empty());
            const auto numbers = numbers_of(box, shape);
            found.insert(found.end(), numbers.begin(), numbers.end());
        }
        std::ranges::sort(found);
        std::vector<std::uint32_t> expected = numbers_of(from, shape);
        std::ranges::sort(expected);
        ASSERT_EQ(found, expected);
    }
}

}  // namespace
}  // namespace regroup::snapshot
