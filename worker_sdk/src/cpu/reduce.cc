// SPDX-License-Identifier: Apache-2.0
// Plain loops over non-overlapping arrays: what compilers vectorise best.
#include "worker_sdk/src/cpu/reduce.h"

#include <type_traits>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {
namespace {

// Signed overflow is undefined, unsigned overflow wraps: integers are computed in their unsigned
// twin. 64 bits are wide enough that no promotion to (signed) int can sneak in for the small ones.
template <class T, bool = std::is_integral_v<T>>
struct Wrapping {
    using Type = T;
};
template <class T>
struct Wrapping<T, true> {
    using Type =
        std::conditional_t<(sizeof(T) < sizeof(unsigned)), unsigned, std::make_unsigned_t<T>>;
};

struct Sum {
    template <class T>
    static T apply(T a, T b) {
        using W = typename Wrapping<T>::Type;
        return static_cast<T>(static_cast<W>(a) + static_cast<W>(b));
    }
};

struct Product {
    template <class T>
    static T apply(T a, T b) {
        using W = typename Wrapping<T>::Type;
        return static_cast<T>(static_cast<W>(a) * static_cast<W>(b));
    }
};

struct Min {
    template <class T>
    static T apply(T a, T b) {
        return b < a ? b : a;
    }
};

struct Max {
    template <class T>
    static T apply(T a, T b) {
        return a < b ? b : a;
    }
};

template <class Op, class T>
void reduce_values(T* __restrict into, const T* __restrict from, std::size_t count) {
    for (std::size_t i = 0; i < count; ++i) {
        into[i] = Op::template apply<T>(into[i], from[i]);
    }
}

template <class T>
void reduce_as(ReduceOp op, void* into, const void* from, std::size_t count) {
    T* const target = static_cast<T*>(into);
    const T* const source = static_cast<const T*>(from);
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
            return reduce_values<Sum>(target, source, count);
        case ReduceOp::product:
            return reduce_values<Product>(target, source, count);
        case ReduceOp::min:
            return reduce_values<Min>(target, source, count);
        case ReduceOp::max:
            return reduce_values<Max>(target, source, count);
    }
    ENSURE(false);
}

template <class T>
void divide_as(void* values, std::size_t count, std::uint32_t divisor) {
    T* const items = static_cast<T*>(values);
    if constexpr (std::is_floating_point_v<T>) {
        for (std::size_t i = 0; i < count; ++i) {
            items[i] /= static_cast<T>(divisor);
        }
    } else {
        // In 64 bits: the divisor need not fit into T.
        for (std::size_t i = 0; i < count; ++i) {
            items[i] = static_cast<T>(static_cast<std::int64_t>(items[i]) /
                                      static_cast<std::int64_t>(divisor));
        }
    }
}

}  // namespace

void reduce(ReduceOp op, DType dtype, void* into, const void* from, std::size_t count) {
    switch (dtype) {
        case DType::float32:
            return reduce_as<float>(op, into, from, count);
        case DType::float64:
            return reduce_as<double>(op, into, from, count);
        case DType::int32:
            return reduce_as<std::int32_t>(op, into, from, count);
        case DType::int64:
            return reduce_as<std::int64_t>(op, into, from, count);
        case DType::uint8:
            return reduce_as<std::uint8_t>(op, into, from, count);
        case DType::int8:
            return reduce_as<std::int8_t>(op, into, from, count);
        case DType::uint32:
            return reduce_as<std::uint32_t>(op, into, from, count);
        case DType::uint64:
            return reduce_as<std::uint64_t>(op, into, from, count);
        case DType::float16:
        case DType::bfloat16:
        case DType::float8_e4m3fn:
        case DType::float8_e5m2:
            break;
    }
    ENSURE(false);
}

void divide(DType dtype, void* values, std::size_t count, std::uint32_t divisor) {
    switch (dtype) {
        case DType::float32:
            return divide_as<float>(values, count, divisor);
        case DType::float64:
            return divide_as<double>(values, count, divisor);
        case DType::int32:
            return divide_as<std::int32_t>(values, count, divisor);
        case DType::int64:
            return divide_as<std::int64_t>(values, count, divisor);
        case DType::uint8:
            return divide_as<std::uint8_t>(values, count, divisor);
        case DType::int8:
            return divide_as<std::int8_t>(values, count, divisor);
        case DType::uint32:
            return divide_as<std::uint32_t>(values, count, divisor);
        case DType::uint64:
            return divide_as<std::uint64_t>(values, count, divisor);
        case DType::float16:
        case DType::bfloat16:
        case DType::float8_e4m3fn:
        case DType::float8_e5m2:
            break;
    }
    ENSURE(false);
}

}  // namespace regroup::cpu
