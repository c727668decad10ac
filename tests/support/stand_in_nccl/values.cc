// SPDX-License-Identifier: Apache-2.0
// Arithmetic on values of NCCL's types.
#include <regroup/low_precision.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "tests/support/stand_in_nccl/wire.h"

namespace stand_in_nccl {
namespace {

template <class T>
inline constexpr bool kIsInteger = std::is_integral_v<T>;

/// Calls `body` with a value of the C++ type.
template <class Body>
void with_type(std::uint32_t dtype, const Body& body) {
    switch (static_cast<ncclDataType_t>(dtype)) {
        case ncclInt8:
            return body(std::int8_t{});
        case ncclUint8:
            return body(std::uint8_t{});
        case ncclInt32:
            return body(std::int32_t{});
        case ncclUint32:
            return body(std::uint32_t{});
        case ncclInt64:
            return body(std::int64_t{});
        case ncclUint64:
            return body(std::uint64_t{});
        case ncclFloat16:
            return body(regroup::float16{});
        case ncclFloat32:
            return body(float{});
        case ncclFloat64:
            return body(double{});
        case ncclBfloat16:
            return body(regroup::bfloat16{});
        case ncclFloat8e4m3:
            return body(regroup::float8_e4m3fn{});
        case ncclFloat8e5m2:
            return body(regroup::float8_e5m2{});
        default:
            return;
    }
}

template <class T>
T load(const std::byte* values, std::size_t i) {
    T value;
    std::memcpy(&value, values + i * sizeof(T), sizeof(T));
    return value;
}

template <class T>
void store(std::byte* values, std::size_t i, T value) {
    std::memcpy(values + i * sizeof(T), &value, sizeof(T));
}

template <class T>
auto wide(T value) {
    if constexpr (kIsInteger<T> || std::is_same_v<T, double>) {
        return value;
    } else {
        return static_cast<float>(value);
    }
}

template <class T>
T combine(ncclRedOp_t op, T a, T b) {
    const auto x = wide(a);
    const auto y = wide(b);
    if (op == ncclMax) {
        return x < y ? b : a;
    }
    if (op == ncclMin) {
        return y < x ? b : a;
    }
    if constexpr (kIsInteger<T>) {
        using Unsigned = std::make_unsigned_t<T>;
        const std::uint64_t p = static_cast<Unsigned>(x);
        const std::uint64_t q = static_cast<Unsigned>(y);
        return static_cast<T>(op == ncclProd ? p * q : p + q);
    } else {
        return T(op == ncclProd ? x * y : x + y);
    }
}

}  // namespace

std::size_t size_of(std::uint32_t dtype) {
    std::size_t size = 0;
    with_type(dtype, [&](auto zero) { size = sizeof zero; });
    return size;
}

void reduce_into(std::uint32_t dtype, std::uint32_t reduction, std::byte* into,
                 const std::byte* more, std::size_t count) {
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (std::size_t i = 0; i < count; ++i) {
            store(into, i,
                  combine(static_cast<ncclRedOp_t>(reduction), load<T>(into, i), load<T>(more, i)));
        }
    });
}

void divide(std::uint32_t dtype, std::byte* values, std::size_t count, int by) {
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (std::size_t i = 0; i < count; ++i) {
            const auto value = wide(load<T>(values, i));
            store(values, i, T(value / static_cast<std::remove_const_t<decltype(value)>>(by)));
        }
    });
}

void scale(std::uint32_t dtype, std::byte* values, std::size_t count, const std::byte* factor) {
    with_type(dtype, [&](auto zero) {
        using T = decltype(zero);
        for (std::size_t i = 0; i < count; ++i) {
            store(values, i, combine(ncclProd, load<T>(values, i), load<T>(factor, 0)));
        }
    });
}

}  // namespace stand_in_nccl
