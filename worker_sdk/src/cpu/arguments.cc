// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/arguments.h"

#include <regroup/error.h>

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

void check_all_gather(ConstTensorView input, ConstTensorView output, std::uint32_t world_size) {
    check_buffer("all_gather: input", input);
    check_buffer("all_gather: output", output);
    if (output.dtype != input.dtype || output.count % world_size != 0 ||
        output.count / world_size != input.count) {
        refuse("all_gather", "an input of " + elements(input) + " and a world of " +
                                 std::to_string(world_size) + " do not make an output of " +
                                 elements(output));
    }
}

}  // namespace regroup::cpu
