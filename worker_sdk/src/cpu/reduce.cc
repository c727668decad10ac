// SPDX-License-Identifier: Apache-2.0
// Plain loops over arrays that do not overlap: what compilers vectorise best.
#include "worker_sdk/src/cpu/reduce.h"

#include <algorithm>
#include <array>
#include <bit>
#include <type_traits>

#include "rendezvous/base/ensure.h"
#include "worker_sdk/src/base/copy.h"
#include "worker_sdk/src/base/float_arrays.h"

namespace regroup::cpu {
namespace {

// The block size of loops that access a value more than once: a few blocks fit into the first-level
// cache.
constexpr std::size_t kBlockBytes = 8192;
constexpr std::size_t kFloatBlock = kBlockBytes / sizeof(float);

// Signed overflow is undefined, unsigned overflow wraps: integers are computed in their unsigned
// twin, and small ones in `unsigned`, to which they would be promoted anyway.
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

// Only a NaN differs from itself. If either operand is a NaN, the result is a NaN.
struct Min {
    template <class T>
    static T apply(T a, T b) {
        return b < a || b != b ? b : a;  // NOLINT(misc-redundant-expression)
    }
};

struct Max {
    template <class T>
    static T apply(T a, T b) {
        return a < b || b != b ? b : a;  // NOLINT(misc-redundant-expression)
    }
};

struct BitAnd {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a & b);
    }
};

struct BitOr {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a | b);
    }
};

struct BitXor {
    template <class T>
    static T apply(T a, T b) {
        return static_cast<T>(a ^ b);
    }
};

// Three loops for the three ways in which the arrays may coincide, so that each loop can mark the
// other arrays as not overlapping.
template <class Op, class T>
void combine_values(T* out, const T* a, const T* b, std::size_t count) {
    if (out == a) {
        T* __restrict into = out;
        const T* __restrict from = b;
        for (std::size_t i = 0; i < count; ++i) {
            into[i] = Op::template apply<T>(into[i], from[i]);
        }
    } else if (out == b) {
        T* __restrict into = out;
        const T* __restrict from = a;
        for (std::size_t i = 0; i < count; ++i) {
            into[i] = Op::template apply<T>(from[i], into[i]);
        }
    } else {
        T* __restrict into = out;
        const T* __restrict first = a;
        const T* __restrict second = b;
        for (std::size_t i = 0; i < count; ++i) {
            into[i] = Op::template apply<T>(first[i], second[i]);
        }
    }
}

template <class T>
void combine_bits(ReduceOp op, T* out, const T* a, const T* b, std::size_t count) {
    if constexpr (std::is_integral_v<T>) {
        switch (op) {
            case ReduceOp::bit_and:
                return combine_values<BitAnd>(out, a, b, count);
            case ReduceOp::bit_or:
                return combine_values<BitOr>(out, a, b, count);
            default:
                return combine_values<BitXor>(out, a, b, count);
        }
    } else {
        ENSURE(false);  // The request was checked.
    }
}

template <class T>
void combine_as(ReduceOp op, T* out, const T* a, const T* b, std::size_t count) {
    switch (op) {
        case ReduceOp::sum:
        case ReduceOp::avg:
            return combine_values<Sum>(out, a, b, count);
        case ReduceOp::product:
            return combine_values<Product>(out, a, b, count);
        case ReduceOp::min:
            return combine_values<Min>(out, a, b, count);
        case ReduceOp::max:
            return combine_values<Max>(out, a, b, count);
        case ReduceOp::bit_and:
        case ReduceOp::bit_or:
        case ReduceOp::bit_xor:
            return combine_bits(op, out, a, b, count);
    }
    ENSURE(false);
}

template <class T>
void divide(T* values, std::size_t count, double divisor) {
    if constexpr (std::is_floating_point_v<T>) {
        for (std::size_t i = 0; i < count; ++i) {
            values[i] /= static_cast<T>(divisor);
        }
    } else {
        // In 64 bits: the divisor need not fit into T.
        using Wide = std::conditional_t<std::is_signed_v<T>, std::int64_t, std::uint64_t>;
        for (std::size_t i = 0; i < count; ++i) {
            values[i] = static_cast<T>(static_cast<Wide>(values[i]) / static_cast<Wide>(divisor));
        }
    }
}

using Sources = std::span<const std::byte* const>;

/// reduce_all for a type that the processor computes with.
template <class T>
void reduce_native(ReduceOp op, void* out, Sources sources, std::size_t count, double divisor) {
    if (sources.size() == 2 && divisor == 1) {
        return combine_as(op, static_cast<T*>(out), reinterpret_cast<const T*>(sources[0]),
                          reinterpret_cast<const T*>(sources[1]), count);
    }
    constexpr std::size_t kBlock = kBlockBytes / sizeof(T);
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    alignas(64) std::array<T, kBlock> sum;
    // The first two sources may be summed in place; a later one would be overwritten too early.
    const bool direct =
        std::find(sources.begin() + std::min<std::ptrdiff_t>(2, std::ssize(sources)), sources.end(),
                  static_cast<std::byte*>(out)) == sources.end();
    for (std::size_t first = 0; first < count; first += kBlock) {
        const std::size_t part = std::min(kBlock, count - first);
        const auto block = [&](std::size_t i) {
            return reinterpret_cast<const T*>(sources[i]) + first;
        };
        T* const target = static_cast<T*>(out) + first;
        T* const into = direct ? target : sum.data();
        if (sources.size() == 1) {
            copy_bytes(into, block(0), part * sizeof(T));
        } else {
            combine_as(op, into, block(0), block(1), part);
        }
        for (std::size_t i = 2; i < sources.size(); ++i) {
            combine_as(op, into, static_cast<const T*>(into), block(i), part);
        }
        if (divisor != 1) {
            divide(into, part, divisor);
        }
        if (!direct) {
            copy_bytes(target, into, part * sizeof(T));
        }
    }
}

/// reduce_all for a type that is computed in float.
void reduce_low_precision(ReduceOp op, DType dtype, void* out, Sources sources, std::size_t count,
                          double divisor) {
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    alignas(64) std::array<float, kFloatBlock> sum;
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    alignas(64) std::array<float, kFloatBlock> next;
    const std::size_t item = item_bytes(dtype);
    for (std::size_t first = 0; first < count; first += kFloatBlock) {
        const std::size_t part = std::min(kFloatBlock, count - first);
        widen(dtype, sources[0] + first * item, sum.data(), part);
        for (const std::byte* const source : sources.subspan(1)) {
            widen(dtype, source + first * item, next.data(), part);
            combine_as<float>(op, sum.data(), sum.data(), next.data(), part);
        }
        if (divisor != 1) {
            divide(sum.data(), part, divisor);
        }
        narrow(dtype, sum.data(), static_cast<std::byte*>(out) + first * item, part);
    }
}

template <class T>
void scale_as(void* out, const void* in, std::size_t count, double factor) {
    T* __restrict target = static_cast<T*>(out);
    if (out == in) {
        for (std::size_t i = 0; i < count; ++i) {
            target[i] *= static_cast<T>(factor);
        }
        return;
    }
    const T* __restrict source = static_cast<const T*>(in);
    for (std::size_t i = 0; i < count; ++i) {
        target[i] = source[i] * static_cast<T>(factor);
    }
}

}  // namespace

void reduce_all(ReduceOp op, DType dtype, void* out, Sources sources, std::size_t count,
                double divisor) {
    ENSURE(!sources.empty());
    switch (dtype) {
        case DType::float32:
            return reduce_native<float>(op, out, sources, count, divisor);
        case DType::float64:
            return reduce_native<double>(op, out, sources, count, divisor);
        case DType::int32:
            return reduce_native<std::int32_t>(op, out, sources, count, divisor);
        case DType::int64:
            return reduce_native<std::int64_t>(op, out, sources, count, divisor);
        case DType::uint8:
            return reduce_native<std::uint8_t>(op, out, sources, count, divisor);
        case DType::int8:
            return reduce_native<std::int8_t>(op, out, sources, count, divisor);
        case DType::uint32:
            return reduce_native<std::uint32_t>(op, out, sources, count, divisor);
        case DType::uint64:
            return reduce_native<std::uint64_t>(op, out, sources, count, divisor);
        case DType::float16:
        case DType::bfloat16:
        case DType::float8_e4m3fn:
        case DType::float8_e5m2:
            return reduce_low_precision(op, dtype, out, sources, count, divisor);
    }
    ENSURE(false);
}

double first_divisor(ReduceOp op, DType dtype, std::uint32_t ranks) noexcept {
    // The range of bfloat16 is that of float.
    const bool is_narrow = is_low_precision(dtype) && dtype != DType::bfloat16;
    return op == ReduceOp::avg && is_narrow ? std::bit_ceil(ranks) : 1;
}

double last_divisor(ReduceOp op, DType dtype, std::uint32_t ranks) noexcept {
    return op == ReduceOp::avg ? ranks / first_divisor(op, dtype, ranks) : 1;
}

void combine(ReduceOp op, DType dtype, void* out, const void* a, const void* b, std::size_t count,
             double divisor) {
    const std::array<const std::byte*, 2> sources = {static_cast<const std::byte*>(a),
                                                     static_cast<const std::byte*>(b)};
    reduce_all(op, dtype, out, sources, count, divisor);
}

void reduce(ReduceOp op, DType dtype, void* into, const void* from, std::size_t count,
            double divisor) {
    combine(op, dtype, into, into, from, count, divisor);
}

void scale(DType dtype, void* out, const void* in, std::size_t count, double factor) {
    if (dtype == DType::float32) {
        return scale_as<float>(out, in, count, factor);
    }
    if (dtype == DType::float64) {
        return scale_as<double>(out, in, count, factor);
    }
    ENSURE(is_low_precision(dtype));
    // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
    alignas(64) std::array<float, kFloatBlock> values;
    const std::size_t item = item_bytes(dtype);
    for (std::size_t first = 0; first < count; first += kFloatBlock) {
        const std::size_t part = std::min(kFloatBlock, count - first);
        widen(dtype, static_cast<const std::byte*>(in) + first * item, values.data(), part);
        scale_as<float>(values.data(), values.data(), part, factor);
        narrow(dtype, values.data(), static_cast<std::byte*>(out) + first * item, part);
    }
}

}  // namespace regroup::cpu
