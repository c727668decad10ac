// SPDX-License-Identifier: Apache-2.0
#include <regroup/tensor_view.h>

#include <array>

#include "rendezvous/base/ensure.h"

namespace regroup {
namespace {

struct DTypeFacts {
    std::string_view name;
    std::size_t item_bytes;
    bool floating_point;
};

/// By number.
constexpr std::array kFacts{
    DTypeFacts{"float32", 4, true},       DTypeFacts{"float64", 8, true},
    DTypeFacts{"int32", 4, false},        DTypeFacts{"int64", 8, false},
    DTypeFacts{"uint8", 1, false},        DTypeFacts{"int8", 1, false},
    DTypeFacts{"uint32", 4, false},       DTypeFacts{"uint64", 8, false},
    DTypeFacts{"float16", 2, true},       DTypeFacts{"bfloat16", 2, true},
    DTypeFacts{"float8_e4m3fn", 1, true}, DTypeFacts{"float8_e5m2", 1, true},
};

DTypeFacts facts(DType dtype) noexcept {
    const auto index = static_cast<std::size_t>(dtype);  // May be of another rank.
    return index < kFacts.size() ? kFacts[index] : DTypeFacts{"unknown", 0, false};
}

DTypeFacts known_facts(DType dtype) noexcept {
    const DTypeFacts known = facts(dtype);
    ENSURE(known.item_bytes > 0);
    return known;
}

}  // namespace

std::string_view to_string(DType dtype) noexcept {
    return facts(dtype).name;
}

std::size_t item_bytes(DType dtype) noexcept {
    return known_facts(dtype).item_bytes;
}

bool is_floating_point(DType dtype) noexcept {
    return known_facts(dtype).floating_point;
}

std::string to_string(const Device& device) {
    return device.kind == DeviceKind::cpu ? "cpu" : "cuda:" + std::to_string(device.index);
}

}  // namespace regroup
