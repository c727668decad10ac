// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <span>

namespace regroup::cpu {

// Arithmetic on arrays, aligned for their dtype. Integers wrap around in their own width. The
// 16-bit and 8-bit floating-point formats are computed in float and rounded once, at the end. `avg`
// adds; its division is asked for by a `divisor` other than 1, and integers truncate towards zero
// then.

/// The divisor of each rank's values before they are added up: 1, but for averages whose sums
/// could leave the range of `dtype` on their way from rank to rank. There it is a power of two,
/// which changes no bit of the fraction of a normal number.
[[nodiscard]] double first_divisor(ReduceOp op, DType dtype, std::uint32_t ranks) noexcept;
/// The divisor of the sum, on the last of the ranks that add up a value.
[[nodiscard]] double last_divisor(ReduceOp op, DType dtype, std::uint32_t ranks) noexcept;

/// `into[i] = (into[i] op from[i]) / divisor`. The arrays do not overlap.
void reduce(ReduceOp op, DType dtype, void* into, const void* from, std::size_t count,
            double divisor = 1);

/// `out[i] = (a[i] op b[i]) / divisor`. `out` may be `a` or `b`; nothing overlaps otherwise.
void combine(ReduceOp op, DType dtype, void* out, const void* a, const void* b, std::size_t count,
             double divisor = 1);

/// `out[i] = (s[0][i] op s[1][i] op ...) / divisor`, in this order. `out` may be one of the
/// sources; nothing overlaps otherwise. Requires at least one source.
void reduce_all(ReduceOp op, DType dtype, void* out, std::span<const std::byte* const> sources,
                std::size_t count, double divisor = 1);

/// `out[i] = in[i] * factor`, in the arithmetic of `dtype`, which is floating-point. `out` may be
/// `in`.
void scale(DType dtype, void* out, const void* in, std::size_t count, double factor);

}  // namespace regroup::cpu
