// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/arguments.h"

#include <regroup/error.h>

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

namespace regroup::cpu {
namespace {

[[noreturn]] void refuse(std::string_view operation, const std::string& detail) {
    throw Error(Errc::invalid_argument, std::string(operation) + ": " + detail);
}

std::string elements(ConstTensorView buffer) {
    return std::to_string(buffer.count) + " x " + std::string(to_string(buffer.dtype));
}

}  // namespace

void check_buffer(std::string_view operation, ConstTensorView buffer) {
    if (buffer.device.kind != DeviceKind::cpu) {
        refuse(operation, "a buffer of " + elements(buffer) + " on " + to_string(buffer.device) +
                              ", but the back end \"cpu\" reaches host memory only; copy it to the "
                              "host, or use the back end \"nccl\"");
    }
    if (buffer.count == 0) {
        return;
    }
    const std::size_t item = item_bytes(buffer.dtype);
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

void check_rank(std::string_view what, std::uint32_t rank, std::uint32_t world_size) {
    if (rank >= world_size) {
        refuse(what, "rank " + std::to_string(rank) + " does not exist in a world of " +
                         std::to_string(world_size));
    }
}

void check_peer(std::string_view operation, std::uint32_t peer, std::uint32_t rank,
                std::uint32_t world_size) {
    check_rank(operation, peer, world_size);
    if (peer == rank) {
        refuse(operation, "rank " + std::to_string(rank) + " itself is no peer");
    }
}

void check_reduction(std::string_view operation, Reduction reduction, DType dtype) {
    if (reduction.op > ReduceOp::avg) {
        refuse(operation, "an operator that does not exist, number " +
                              std::to_string(static_cast<int>(reduction.op)));
    }
    if (reduction.factor != 1.0 && (reduction.op != ReduceOp::sum || !is_floating_point(dtype))) {
        refuse(operation, "a factor of " + std::to_string(reduction.factor) + " for " +
                              std::string(to_string(reduction.op)) + " of " +
                              std::string(to_string(dtype)) +
                              "; only a sum of floating-point values can have one");
    }
}

void check_rows(std::string_view operation, ConstTensorView row, ConstTensorView rows,
                std::uint32_t world_size) {
    if (rows.dtype != row.dtype || rows.count % world_size != 0 ||
        rows.count / world_size != row.count) {
        refuse(operation, elements(rows) + " are not one row of " + elements(row) +
                              " for each rank of a world of " + std::to_string(world_size));
    }
}

void check_exchange(std::string_view operation, ConstTensorView input, ConstTensorView output,
                    std::uint32_t world_size) {
    if (input.dtype != output.dtype || input.count != output.count ||
        input.count % world_size != 0) {
        refuse(operation, "an input of " + elements(input) + " and an output of " +
                              elements(output) +
                              "; both must be the same, with one row for each rank of a world of " +
                              std::to_string(world_size));
    }
    const auto* const in = static_cast<const std::byte*>(input.data);
    const auto* const out = static_cast<const std::byte*>(output.data);
    if (input.count > 0 && in < out + output.bytes() && out < in + input.bytes()) {
        refuse(operation, "the input and the output overlap");
    }
}

}  // namespace regroup::cpu
