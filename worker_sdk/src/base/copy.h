// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>

namespace regroup {

/// memcpy, for data of the user, which may be much. The two may also be the same memory, and both
/// null if there are no bytes.
///
/// It uses the instruction `rep movsb` on processors of Intel only. On some of AMD that is several
/// times slower than the loads and stores of vectors, and the memcpy of glibc before 2.39 uses it
/// there.
/// From kStreamedBytes on, the copy goes past the caches: what is that large has left them before
/// it is read.
void copy_bytes(void* to, const void* from, std::size_t bytes) noexcept;

inline constexpr std::size_t kStreamedBytes = std::size_t{16} << 20U;

}  // namespace regroup
