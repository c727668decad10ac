// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/arguments.h"

#include <regroup/error.h>

#include <limits>
#include <string>

#include "worker_sdk/src/nccl/operation.h"

namespace regroup::nccl {
namespace {

[[noreturn]] void refuse(std::string_view operation, const std::string& detail) {
    throw Error(Errc::invalid_argument, std::string(operation) + ": " + detail);
}

std::string elements(ConstTensorView buffer) {
    return std::to_string(buffer.count) + " x " + std::string(to_string(buffer.dtype));
}

}  // namespace

void check_buffer(std::string_view operation, ConstTensorView buffer, const Bounds& bounds) {
    if (buffer.count == 0) {
        return;
    }
    const std::size_t item = item_bytes(buffer.dtype);
    if (buffer.device != bounds.device) {
        refuse(operation, "a buffer on " + to_string(buffer.device) + ", and this group's are on " +
                              to_string(bounds.device));
    }
    if (buffer.data == nullptr) {
        refuse(operation, "a buffer of " + elements(buffer) + " without data");
    }
    if (buffer.count > std::numeric_limits<std::size_t>::max() / item) {
        refuse(operation, "a buffer of " + elements(buffer) + " exceeds the address space");
    }
    if (reinterpret_cast<std::uintptr_t>(buffer.data) % item != 0) {
        refuse(operation, "a buffer that is not aligned to its element size of " +
                              std::to_string(item) + " bytes");
    }
}

void check_reduction(std::string_view operation, const Reduction& reduction, DType dtype,
                     const Bounds& bounds) {
    constexpr int kHopper = 90;
    constexpr int kFloat8Since = 22400;
    if (reduction.premultiplied() && !is_floating_point(dtype)) {
        refuse(operation, "a premultiplied sum is for floating-point values, not " +
                              std::string(to_string(dtype)));
    }
    if (reduction.premultiplied() && reduction.op != ReduceOp::sum) {
        refuse(operation,
               "a factor goes with sum, not with " + std::string(to_string(reduction.op)));
    }
    if (is_float8(dtype) && bounds.nccl_version < kFloat8Since) {
        refuse(operation, "NCCL reduces " + std::string(to_string(dtype)) + " from " +
                              version_text(kFloat8Since) + " on, and this is " +
                              version_text(bounds.nccl_version));
    }
    if (is_float8(dtype) && bounds.compute_capability < kHopper) {
        refuse(operation, "NCCL reduces " + std::string(to_string(dtype)) +
                              " on GPUs of compute capability 9.0 and newer, and " +
                              to_string(bounds.device) + " has " +
                              std::to_string(bounds.compute_capability / 10) + "." +
                              std::to_string(bounds.compute_capability % 10));
    }
}

void check_root(std::string_view operation, std::uint32_t root, const Bounds& bounds) {
    if (root >= bounds.world_size) {
        refuse(operation, "rank " + std::to_string(root) + " does not exist in a world of " +
                              std::to_string(bounds.world_size));
    }
}

void check_peer(std::string_view operation, std::uint32_t peer, const Bounds& bounds) {
    check_root(operation, peer, bounds);
    if (peer == bounds.rank) {
        refuse(operation, "rank " + std::to_string(peer) + " itself is no peer");
    }
}

void check_rows(std::string_view operation, ConstTensorView row, ConstTensorView whole,
                const Bounds& bounds) {
    check_buffer(operation, row, bounds);
    check_buffer(operation, whole, bounds);
    if (whole.dtype != row.dtype || whole.count % bounds.world_size != 0 ||
        whole.count / bounds.world_size != row.count) {
        refuse(operation, "a row of " + elements(row) + " for each of " +
                              std::to_string(bounds.world_size) + " ranks does not make " +
                              elements(whole));
    }
}

void check_exchange(std::string_view operation, ConstTensorView input, ConstTensorView output,
                    const Bounds& bounds) {
    check_buffer(operation, input, bounds);
    check_buffer(operation, output, bounds);
    if (input.dtype != output.dtype || input.count != output.count ||
        input.count % bounds.world_size != 0) {
        refuse(operation, "an input of " + elements(input) + " and an output of " +
                              elements(output) + " are not the same rows for " +
                              std::to_string(bounds.world_size) + " ranks");
    }
    const auto* const in = static_cast<const std::byte*>(input.data);
    const auto* const out = static_cast<const std::byte*>(output.data);
    if (input.count > 0 && in < out + output.bytes() && out < in + input.bytes()) {
        refuse(operation, "input and output overlap");
    }
}

}  // namespace regroup::nccl
