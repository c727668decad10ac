// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <nccl.h>
#include <string>

namespace regroup::nccl {

static_assert(NCCL_VERSION_CODE >= NCCL_VERSION(2, 28, 0),
              "regroup is built with the nccl.h of NCCL 2.28 or newer; the library that is opened "
              "may be older");

// Name in the table, name in the library. The back end requires all functions of the first list.
#define REGROUP_NCCL_REQUIRED(X)                           \
    X(get_version, ncclGetVersion)                         \
    X(get_unique_id, ncclGetUniqueId)                      \
    X(get_error_string, ncclGetErrorString)                \
    X(get_last_error, ncclGetLastError)                    \
    X(comm_init_rank_config, ncclCommInitRankConfig)       \
    X(comm_split, ncclCommSplit)                           \
    X(comm_count, ncclCommCount)                           \
    X(comm_user_rank, ncclCommUserRank)                    \
    X(comm_finalize, ncclCommFinalize)                     \
    X(comm_destroy, ncclCommDestroy)                       \
    X(comm_abort, ncclCommAbort)                           \
    X(comm_get_async_error, ncclCommGetAsyncError)         \
    X(group_start, ncclGroupStart)                         \
    X(group_end, ncclGroupEnd)                             \
    X(red_op_create_pre_mul_sum, ncclRedOpCreatePreMulSum) \
    X(red_op_destroy, ncclRedOpDestroy)                    \
    X(all_reduce, ncclAllReduce)                           \
    X(reduce, ncclReduce)                                  \
    X(reduce_scatter, ncclReduceScatter)                   \
    X(broadcast, ncclBroadcast)                            \
    X(all_gather, ncclAllGather)                           \
    X(send, ncclSend)                                      \
    X(recv, ncclRecv)

// Newer than 2.18; null where the library is older.
#define REGROUP_NCCL_OPTIONAL(X)                         \
    X(comm_init_rank_scalable, ncclCommInitRankScalable) \
    X(mem_alloc, ncclMemAlloc)                           \
    X(mem_free, ncclMemFree)                             \
    X(comm_register, ncclCommRegister)                   \
    X(comm_deregister, ncclCommDeregister)               \
    X(all_to_all, ncclAlltoAll)                          \
    X(gather, ncclGather)                                \
    X(scatter, ncclScatter)

/// The functions of one libnccl.so.2, which is opened when a program asks for a GPU, so that one
/// binary runs with and without it.
struct NcclApi {
// NOLINTNEXTLINE(bugprone-macro-parentheses): names cannot have them.
#define REGROUP_NCCL_MEMBER(member, function) decltype(&function) member = nullptr;
    REGROUP_NCCL_REQUIRED(REGROUP_NCCL_MEMBER)
    REGROUP_NCCL_OPTIONAL(REGROUP_NCCL_MEMBER)
#undef REGROUP_NCCL_MEMBER

    int version = 0;     ///< 22809 for 2.28.9.
    std::string path{};  ///< Of the opened library.
};

/// A call of a non-blocking communicator that was taken, whether or not it is done.
[[nodiscard]] constexpr bool is_good(ncclResult_t result) noexcept {
    return result == ncclSuccess || result == ncclInProgress;
}

/// Opens the library at `path` for the life of the process. Throws Error `invalid_argument` naming
/// the fault of the library.
[[nodiscard]] NcclApi open_api(const std::string& path);

/// The library of this machine, opened once: REGROUP_NCCL_LIBRARY, else libnccl.so.2 where the
/// loader finds it, else beside the CUDA toolkit. Throws Error `invalid_argument` naming the paths
/// tried. Any thread.
[[nodiscard]] const NcclApi& installed_api();

/// "2.28.9".
[[nodiscard]] std::string version_text(int version);

}  // namespace regroup::nccl
