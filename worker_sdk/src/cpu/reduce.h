// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>

namespace regroup::cpu {

/// `into[i] = into[i] op from[i]` for `count` elements; `avg` adds, `divide` completes it. The
/// buffers do not overlap and are aligned for `dtype`. Integers wrap around in their own width.
void reduce(ReduceOp op, DType dtype, void* into, const void* from, std::size_t count);

/// `values[i] /= divisor`; integers truncate towards zero.
void divide(DType dtype, void* values, std::size_t count, std::uint32_t divisor);

}  // namespace regroup::cpu
