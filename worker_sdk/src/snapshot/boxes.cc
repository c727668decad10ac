// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/boxes.h"

#include <algorithm>
#include <cstring>

namespace regroup::snapshot {
namespace {

/// The offset of an element of an array, in elements.
std::uint64_t offset_in(const Box& array, const std::vector<std::uint64_t>& place) {
    std::uint64_t offset = 0;
    for (std::size_t i = 0; i < place.size(); ++i) {
        offset = offset * (array.end[i] - array.begin[i]) + place[i] - array.begin[i];
    }
    return offset;
}

}  // namespace

Box Box::of(const TensorEntry& entry) {
    Box box{entry.offset, entry.offset};
    box.begin.resize(entry.shape.size());
    box.end.resize(entry.shape.size());
    for (std::size_t i = 0; i < entry.shape.size(); ++i) {
        box.end[i] += entry.shape[i];
    }
    return box;
}

bool Box::empty() const noexcept {
    for (std::size_t i = 0; i < begin.size(); ++i) {
        if (begin[i] >= end[i]) {
            return true;
        }
    }
    return false;  // A tensor without dimensions has one element.
}

std::optional<Box> intersection(const Box& a, const Box& b) {
    Box common = a;
    for (std::size_t i = 0; i < a.begin.size(); ++i) {
        common.begin[i] = std::max(a.begin[i], b.begin[i]);
        common.end[i] = std::min(a.end[i], b.end[i]);
    }
    return common.empty() ? std::nullopt : std::optional(common);
}

std::vector<Box> difference(const Box& from, const Box& part) {
    std::vector<Box> rest;
    Box middle = from;
    // Cuts off what lies before and behind the part, one dimension after the other.
    for (std::size_t i = 0; i < from.begin.size(); ++i) {
        Box before = middle;
        before.end[i] = part.begin[i];
        Box behind = middle;
        behind.begin[i] = part.end[i];
        for (Box& cut : {std::ref(before), std::ref(behind)}) {
            if (!cut.empty()) {
                rest.push_back(std::move(cut));
            }
        }
        middle.begin[i] = part.begin[i];
        middle.end[i] = part.end[i];
    }
    return rest;
}

void copy_box(const Box& box, const BoxArray<std::byte>& to, const BoxArray<const std::byte>& from,
              std::size_t item) {
    if (box.empty()) {
        return;
    }
    // One run in both arrays: the last dimensions, as far as both have all of them.
    std::size_t outer = box.begin.size();
    std::uint64_t run = item;
    for (bool is_whole = true; outer > 0 && is_whole; --outer) {
        const std::size_t i = outer - 1;
        run *= box.end[i] - box.begin[i];
        is_whole = box.begin[i] == to.box.begin[i] && box.end[i] == to.box.end[i] &&
                   box.begin[i] == from.box.begin[i] && box.end[i] == from.box.end[i];
    }
    std::vector<std::uint64_t> place = box.begin;
    for (bool is_more = true; is_more;) {
        std::memcpy(to.data + offset_in(to.box, place) * item,
                    from.data + offset_in(from.box, place) * item, run);
        is_more = false;
        for (std::size_t i = outer; i-- > 0 && !is_more;) {
            is_more = ++place[i] < box.end[i];
            place[i] = is_more ? place[i] : box.begin[i];
        }
    }
}

}  // namespace regroup::snapshot
