// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/operation.h"

#include <regroup/low_precision.h>

#include <cstring>

namespace regroup::nccl {
bool is_float8(DType dtype) noexcept {
    return dtype == DType::float8_e4m3fn || dtype == DType::float8_e5m2;
}

ncclDataType_t nccl_type(DType dtype) noexcept {
    switch (dtype) {
        case DType::float32:
            return ncclFloat32;
        case DType::float64:
            return ncclFloat64;
        case DType::int32:
            return ncclInt32;
        case DType::int64:
            return ncclInt64;
        case DType::uint8:
            return ncclUint8;
        case DType::int8:
            return ncclInt8;
        case DType::uint32:
            return ncclUint32;
        case DType::uint64:
            return ncclUint64;
        case DType::float16:
            return ncclFloat16;
        case DType::bfloat16:
            return ncclBfloat16;
        case DType::float8_e4m3fn:
            return ncclFloat8e4m3;
        case DType::float8_e5m2:
            return ncclFloat8e5m2;
    }
    return ncclUint8;
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
