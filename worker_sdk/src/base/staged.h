// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

namespace regroup {

/// Makes host memory usable for the operations of a group on any device: in place on the CPU, in a
/// copy on the GPU. For small values, since each copy blocks.
class Staged {
   public:
    /// `host` outlives it. Its contents are copied.
    Staged(const ProcessGroup& group, TensorView host);

    [[nodiscard]] const TensorView& view() const noexcept { return view_; }
    /// Copies the values back. Wait for the operation first.
    void read_back();

   private:
    TensorView host_;
    Buffer memory_;
    TensorView view_;
};

}  // namespace regroup
