// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>
#include <type_traits>

namespace regroup {

enum class DType : std::uint8_t { float32, float64, int32, int64, uint8 };
enum class DeviceKind : std::uint8_t { cpu };

/// "float32", "int64", ...
[[nodiscard]] std::string_view to_string(DType dtype) noexcept;
/// Bytes of one element.
[[nodiscard]] std::size_t item_bytes(DType dtype) noexcept;

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

/// A contiguous buffer that somebody else owns: `count` elements of `dtype` on `device`. No
/// interface of the SDK takes a bare size, so a byte count can never pass for an element count.
struct ConstTensorView {
    const void* data = nullptr;
    std::size_t count = 0;
    DType dtype = DType::float32;
    DeviceKind device = DeviceKind::cpu;

    ConstTensorView() = default;
    ConstTensorView(const void* data_in, std::size_t count_in, DType dtype_in) noexcept
        : data(data_in), count(count_in), dtype(dtype_in) {}
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
    DeviceKind device = DeviceKind::cpu;

    TensorView() = default;
    TensorView(void* data_in, std::size_t count_in, DType dtype_in) noexcept
        : data(data_in), count(count_in), dtype(dtype_in) {}
    template <class T>
        requires(!std::is_const_v<T>)
    TensorView(std::span<T> values) noexcept  // NOLINT: implicit on purpose
        : TensorView(values.data(), values.size(), DTypeOf<T>::value) {}

    operator ConstTensorView() const noexcept {  // NOLINT: implicit on purpose
        return {data, count, dtype};
    }
    [[nodiscard]] std::size_t bytes() const noexcept { return count * item_bytes(dtype); }
};

}  // namespace regroup
