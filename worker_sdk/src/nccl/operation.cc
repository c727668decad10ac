// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/operation.h"

#include <regroup/low_precision.h>

#include <array>
#include <cstring>

namespace regroup::nccl {

bool is_float8(DType dtype) noexcept {
    return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2;
}

ncclDataType_t nccl_type(DType dtype) noexcept {
    constexpr std::array kTypes{ncclFloat32, ncclFloat64,  ncclInt32,      ncclInt64,
                                ncclUint8,   ncclInt8,     ncclUint32,     ncclUint64,
                                ncclFloat16, ncclBfloat16, ncclFloat8e4m3, ncclFloat8e5m2};
    return kTypes.at(static_cast<std::size_t>(dtype));
}

ncclDataType_t nccl_moved_type(DType dtype) noexcept {
    return is_float8(dtype) ? ncclUint8 : nccl_type(dtype);
}

ncclRedOp_t nccl_reduction(ReduceOp op) noexcept {
    switch (op) {
        case ReduceOp::sum:
            return ncclSum;
        case ReduceOp::product:
            return ncclProd;
        case ReduceOp::min:
            return ncclMin;
        case ReduceOp::max:
            return ncclMax;
        case ReduceOp::avg:
            return ncclAvg;
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            break;  // Refused before: NCCL has none.
    }
    return ncclSum;
}

Scalar::Scalar(double factor, DType dtype) noexcept {
    const auto store = [this](auto value) { std::memcpy(bytes_, &value, sizeof value); };
    const auto narrow = static_cast<float>(factor);
    switch (dtype) {
        case DType::float64:
            store(factor);
            break;
        case DType::float16:
            store(float16(narrow));
            break;
        case DType::bfloat16:
            store(bfloat16(narrow));
            break;
        case DType::float8_e4m3fn:
            store(float8_e4m3fn(narrow));
            break;
        case DType::float8_e5m2:
            store(float8_e5m2(narrow));
            break;
        default:
            store(narrow);
            break;
    }
}

}  // namespace regroup::nccl
