// SPDX-License-Identifier: Apache-2.0
#include <regroup/tensor_view.h>

#include "rendezvous/base/ensure.h"

namespace regroup {
namespace {

struct DTypeFacts {
    std::string_view name;
    std::size_t item_bytes;
    bool floating_point;
};

DTypeFacts facts(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return {"float32", 4, true};
        case DType::float64:
            return {"float64", 8, true};
        case DType::int32:
            return {"int32", 4, false};
        case DType::int64:
            return {"int64", 8, false};
        case DType::uint8:
            return {"uint8", 1, false};
        case DType::int8:
            return {"int8", 1, false};
        case DType::uint32:
            return {"uint32", 4, false};
        case DType::uint64:
            return {"uint64", 8, false};
        case DType::float16:
            return {"float16", 2, true};
        case DType::bfloat16:
            return {"bfloat16", 2, true};
        case DType::float8_e4m3fn:
            return {"float8_e4m3fn", 1, true};
        case DType::float8_e5m2:
            return {"float8_e5m2", 1, true};
    }
    return {"unknown", 0, false};  // A number of another rank.
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
