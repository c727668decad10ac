// SPDX-License-Identifier: Apache-2.0
//
// Boxes of elements in a tensor: pieces that ranks save and load.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "rendezvous/snapshot/image.h"

namespace regroup::snapshot {

/// The elements from `begin[i]` up to `end[i]` in each dimension i.
struct Box {
    std::vector<std::uint64_t> begin{};
    std::vector<std::uint64_t> end{};

    /// Of the tensor or piece.
    [[nodiscard]] static Box of(const TensorEntry& entry);
    [[nodiscard]] bool empty() const noexcept;

    friend bool operator==(const Box&, const Box&) = default;
};

/// The elements that are in both, which have equally many dimensions; nothing if there are none.
[[nodiscard]] std::optional<Box> intersection(const Box& a, const Box& b);
/// The elements of `from` that are not in `part`, which is in it, as boxes without common elements.
[[nodiscard]] std::vector<Box> difference(const Box& from, const Box& part);

/// An array in which the elements of `box` lie one after the other, the last dimension first.
template <class Byte>
struct BoxArray {
    const Box& box;
    Byte* data;
};
/// Copies the elements of `box`, which is in both arrays. `item`: bytes of an element.
void copy_box(const Box& box, const BoxArray<std::byte>& to, const BoxArray<const std::byte>& from,
              std::size_t item);

}  // namespace regroup::snapshot
