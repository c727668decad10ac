// SPDX-License-Identifier: Apache-2.0
#include <regroup/tensor_view.h>

#include "rendezvous/base/ensure.h"

namespace regroup {

std::string_view to_string(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return "float32";
        case DType::float64:
            return "float64";
        case DType::int32:
            return "int32";
        case DType::int64:
            return "int64";
        case DType::uint8:
            return "uint8";
    }
    return "unknown";
}

std::size_t item_bytes(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
        case DType::int32:
            return 4;
        case DType::float64:
        case DType::int64:
            return 8;
        case DType::uint8:
            return 1;
    }
    ENSURE(false);
    return 0;
}

}  // namespace regroup
