// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>
#include <regroup/tensor_view.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <nccl.h>
#include <optional>

#include "worker_sdk/src/group/standing.h"
#include "worker_sdk/src/group/work.h"
#include "worker_sdk/src/nccl/nccl_api.h"

namespace regroup::nccl {

/// The request of the caller, as errors describe it and other ranks compare it.
struct Operation {
    Signature signature{};
    std::optional<Reduction> reduction{};
    OperationOptions options{};
    std::uint64_t record = 0;  ///< The entry of the flight recorder.
    std::uint64_t report = 0;  ///< The number in the GroupReport.
};

[[nodiscard]] inline bool is_message(const Operation& operation) noexcept {
    return is_message(operation.signature.kind);
}

/// An operation and the calls of NCCL that carry it out, to be made between ncclGroupStart and
/// ncclGroupEnd.
struct Call {
    using Launch =
        std::function<ncclResult_t(ncclComm_t comm, ncclRedOp_t reduction, cudaStream_t stream)>;

    Operation operation{};
    Launch launch{};
    std::shared_ptr<Work::State> work{};
};

[[nodiscard]] bool is_float8(DType dtype) noexcept;
[[nodiscard]] ncclDataType_t nccl_type(DType dtype) noexcept;
/// For operations that only move values: as bytes where older libraries lack the type.
[[nodiscard]] ncclDataType_t nccl_moved_type(DType dtype) noexcept;
/// Of a Reduction without a factor.
[[nodiscard]] ncclRedOp_t nccl_reduction(ReduceOp op) noexcept;

/// `factor` in `dtype`, as ncclRedOpCreatePreMulSum reads it. Requires a floating-point type.
class Scalar {
   public:
    Scalar(double factor, DType dtype) noexcept;
    [[nodiscard]] void* data() noexcept { return bytes_; }

   private:
    alignas(8) std::byte bytes_[8]{};
};

}  // namespace regroup::nccl
