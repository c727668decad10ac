// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/arguments.h"

#include <regroup/error.h>

#include <string>

#include "worker_sdk/src/nccl/operation.h"

namespace regroup::nccl {
namespace {

[[noreturn]] void refuse(std::string_view operation, const std::string& detail) {
    throw Error(Errc::invalid_argument, std::string(operation) + ": " + detail);
}

}  // namespace

void check_float8(std::string_view operation, DType dtype, const Bounds& bounds) {
    constexpr int kHopper = 90;
    constexpr int kFloat8Since = 22400;
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

}  // namespace regroup::nccl
