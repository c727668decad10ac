// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/low_precision.h>

#include <cstddef>
#include <cstdint>
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

/// The DType of a C++ element type. Only the types listed here have one.
template <class T>
struct DTypeOf;
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
    template <class T>
    ConstTensorView(std::span<T> values) noexcept  // NOLINT: implicit on purpose
        : ConstTensorView(values.data(), values.size(), DTypeOf<std::remove_const_t<T>>::value) {}

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
    template <class T>
        requires(!std::is_const_v<T>)
    TensorView(std::span<T> values) noexcept  // NOLINT: implicit on purpose
        : TensorView(values.data(), values.size(), DTypeOf<T>::value) {}

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
