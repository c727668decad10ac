// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/low_precision.h>

#include <cstddef>
#include <cstdint>
#include <ranges>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>

namespace regroup {

enum class DType : std::uint8_t {
    float32,
    float64,
    int32,
    int64,
    uint8,
    int8,
    uint32,
    uint64,
    float16,
    bfloat16,
    float8_e4m3fn,
    float8_e5m2,
};

/// "float32", "int64", ...
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
/// Bytes of one element.
[[nodiscard]] std::size_t item_bytes(DType dtype) noexcept;
[[nodiscard]] bool is_floating_point(DType dtype) noexcept;

enum class DeviceKind : std::uint8_t { cpu, cuda };

/// Where a buffer lies.
struct Device {
    DeviceKind kind = DeviceKind::cpu;
    /// CUDA's ordinal of the GPU in this process; 0 for the CPU.
    std::int32_t index = 0;

    friend bool operator==(const Device&, const Device&) = default;
};

/// "cpu", "cuda:0".
[[nodiscard]] std::string to_string(const Device& device);

namespace internal {
template <class T>
inline constexpr bool kHasDType = false;
}  // namespace internal

/// The DType of a C++ element type. `long`, `long long` and their unsigned twins are the 64-bit
/// types, std::byte is uint8. Other types have none, and the compiler says so.
template <class T>
struct DTypeOf {
    static_assert(!std::is_same_v<T, bool>,
                  "bool has no DType, since the sum of two bools is no bool: use std::uint8_t");
    static_assert(!std::is_integral_v<T> || sizeof(T) != 2,
                  "16-bit integers have no DType, since NCCL has none: widen them to std::int32_t");
    static_assert(!std::is_same_v<T, char>,
                  "char has no DType: use std::int8_t, std::uint8_t or std::byte");
    static_assert(internal::kHasDType<T>,
                  "this element type has no DType; the DTypes are listed in regroup/tensor_view.h");
};
template <>
struct DTypeOf<float> : std::integral_constant<DType, DType::float32> {};
template <>
struct DTypeOf<double> : std::integral_constant<DType, DType::float64> {};
template <>
struct DTypeOf<std::int32_t> : std::integral_constant<DType, DType::int32> {};
template <>
struct DTypeOf<std::int64_t> : std::integral_constant<DType, DType::int64> {};
template <>
struct DTypeOf<std::uint8_t> : std::integral_constant<DType, DType::uint8> {};
template <>
struct DTypeOf<std::int8_t> : std::integral_constant<DType, DType::int8> {};
template <>
struct DTypeOf<std::uint32_t> : std::integral_constant<DType, DType::uint32> {};
template <>
struct DTypeOf<std::uint64_t> : std::integral_constant<DType, DType::uint64> {};
template <>
struct DTypeOf<float16> : std::integral_constant<DType, DType::float16> {};
template <>
struct DTypeOf<bfloat16> : std::integral_constant<DType, DType::bfloat16> {};
template <>
struct DTypeOf<float8_e4m3fn> : std::integral_constant<DType, DType::float8_e4m3fn> {};
template <>
struct DTypeOf<float8_e5m2> : std::integral_constant<DType, DType::float8_e5m2> {};

template <>
struct DTypeOf<std::byte> : std::integral_constant<DType, DType::uint8> {};
template <>
struct DTypeOf<long long> : std::integral_constant<DType, DType::int64> {};
template <>
struct DTypeOf<unsigned long long> : std::integral_constant<DType, DType::uint64> {};

/// A range in host memory whose elements lie one after the other, and which
/// outlives the expression that names it: a vector or an array with a name, a span of any extent.
template <class R>
concept TensorRange = std::ranges::contiguous_range<R> && std::ranges::sized_range<R> &&
                      std::ranges::borrowed_range<R>;

/// A contiguous buffer, which the view does not own: `count` elements of `dtype` on `device`.
struct ConstTensorView {
    const void* data = nullptr;
    std::size_t count = 0;
    DType dtype = DType::float32;
    Device device = {};

    ConstTensorView() = default;
    ConstTensorView(const void* data_in, std::size_t count_in, DType dtype_in,
                    Device device_in = {}) noexcept
        : data(data_in), count(count_in), dtype(dtype_in), device(device_in) {}
    template <TensorRange R>
    ConstTensorView(R&& values) noexcept  // NOLINT: implicit on purpose
        : ConstTensorView(std::ranges::data(values), std::ranges::size(values),
                          DTypeOf<std::ranges::range_value_t<R>>::value) {}

    [[nodiscard]] std::size_t bytes() const noexcept { return count * item_bytes(dtype); }
};

/// The same, writable.
struct TensorView {
    void* data = nullptr;
    std::size_t count = 0;
    DType dtype = DType::float32;
    Device device = {};

    TensorView() = default;
    TensorView(void* data_in, std::size_t count_in, DType dtype_in, Device device_in = {}) noexcept
        : data(data_in), count(count_in), dtype(dtype_in), device(device_in) {}
    template <TensorRange R>
        requires(!std::is_const_v<std::remove_reference_t<std::ranges::range_reference_t<R>>>)
    TensorView(R&& values) noexcept  // NOLINT: implicit on purpose
        : TensorView(std::ranges::data(values), std::ranges::size(values),
                     DTypeOf<std::ranges::range_value_t<R>>::value) {}

    operator ConstTensorView() const noexcept {  // NOLINT: implicit on purpose
        return {data, count, dtype, device};
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return count * item_bytes(dtype); }
    /// Elements [first, first + count_in) of this buffer. Requires that they are in it.
    [[nodiscard]] TensorView part(std::size_t first, std::size_t count_in) const noexcept {
        return {static_cast<std::byte*>(data) + first * item_bytes(dtype), count_in, dtype, device};
    }
};

}  // namespace regroup
