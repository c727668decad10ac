// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/environment.h"

#include <cstdlib>
#include <unistd.h>

namespace regroup::cuda {
namespace {

std::optional<std::string> variable(const char* name) {
    const char* const value = std::getenv(name);
    if (value == nullptr) {
        return std::nullopt;
    }
    return value;
}

std::optional<std::string> filled(const char* name) {
    std::optional<std::string> value = variable(name);
    return value && value->empty() ? std::nullopt : value;
}

/// As NCCL reads it: 0x1 and 01 are 1, too.
bool is_one(const char* name) {
    const std::optional<std::string> value = filled(name);
    return value && std::strtoll(value->c_str(), nullptr, 0) == 1;
}

}  // namespace

Environment Environment::read() {
    const bool blocking_calls = variable("REGROUP_NCCL_BLOCKING") == "1";
    return {.visible_devices = variable("CUDA_VISIBLE_DEVICES"),
            .nccl_library = filled("REGROUP_NCCL_LIBRARY"),
            .nccl_comm_id = filled("NCCL_COMM_ID"),
            .nccl_blocks =
                is_one("NCCL_COMM_BLOCKING") || (blocking_calls && filled("NCCL_COMM_BLOCKING")),
            .nccl_splits_share = is_one("NCCL_COMM_SPLIT_SHARE_RESOURCES"),
            .blocking_calls = blocking_calls,
            .share_gpus = variable("REGROUP_SHARE_GPUS") == "1"};
}

void turn_off_ras() {
    ::setenv("NCCL_RAS_ENABLE", "0", 0);
}

void turn_off_profiler() {
    const std::optional<std::string> plugin = variable("NCCL_PROFILER_PLUGIN");
    if (plugin && plugin->ends_with("/libnccl-profiler-regroup.so")) {
        ::setenv("NCCL_PROFILER_PLUGIN", "none", 1);
    }
}

void let_ranks_share_a_gpu(std::uint32_t rank) {
    const std::string host = "regroup-" + std::to_string(rank) + "-" + std::to_string(::getpid());
    // Another host id for each rank keeps NCCL from refusing; the rest keeps it from looking for
    // links that such a host would have.
    ::setenv("NCCL_HOSTID", host.c_str(), 0);
    ::setenv("NCCL_SOCKET_IFNAME", "lo", 0);
    ::setenv("NCCL_IB_DISABLE", "1", 0);
    ::setenv("NCCL_MNNVL_ENABLE", "0", 0);
    ::setenv("NCCL_NVLS_ENABLE", "0", 0);
    // Few blocks for each rank, since all ranks' kernels wait for each other on one GPU.
    ::setenv("NCCL_MAX_CTAS", "2", 0);
}

}  // namespace regroup::cuda
