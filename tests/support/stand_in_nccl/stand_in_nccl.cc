// SPDX-License-Identifier: Apache-2.0
// NCCL's interface, as far as the worker SDK uses it. Every call checks that the caller follows the
// rules of non-blocking communicators.
#include "tests/support/stand_in_nccl/stand_in_nccl.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <span>
#include <string_view>
#include <utility>
#include <vector>

#include "tests/support/stand_in_nccl/communicator.h"
#include "tests/support/stand_in_nccl/journal.h"

using namespace stand_in_nccl;

namespace {

constexpr int kVersion = 22809;
constexpr int kFloat8Since = 22400;

/// The operations of the thread between ncclGroupStart and ncclGroupEnd.
struct OpenGroup {
    int depth = 0;
    std::map<ncclComm_t, std::pair<std::vector<Operation>, StandInStream*>> operations;
    std::vector<ncclComm_t> aborted;
    void* profiled = nullptr;  ///< The profiler plugin's handle of it.
};

thread_local OpenGroup open_group;

constexpr std::size_t kPage = 4096;
/// The alignment of cudaMalloc, to which NCCL falls back.
constexpr std::size_t kAlignment = 512;
constexpr std::byte kGuard{0xa5};

/// A block of ncclMemAlloc, with a guard after it.
struct Block {
    std::byte* data = nullptr;
    std::size_t bytes = 0;
    std::vector<std::byte> storage{};
};

std::mutex blocks_mutex;
std::list<Block> blocks;  // guarded by blocks_mutex

std::string name_of(ncclComm_t comm) {
    return "comm=" + std::to_string(comm->number);
}

/// Marks a thread that is in a call on a communicator.
class Visit {
   public:
    Visit(ncclComm_t comm, const char* call, bool needs_ready = true) : comm_(comm) {
        if (comm_->freed) {
            note_violation(std::string(call) + " on the freed " + name_of(comm_));
            good_ = false;
        }
        // The abort of a blocking communicator ends the calls that other threads are in.
        const bool ends_calls = comm_->blocking && std::string_view(call) == "abort";
        if (comm_->inside.fetch_add(1) != 0 && !ends_calls) {
            note_violation(std::string(call) + " while another thread is in a call on " +
                           name_of(comm_));
        }
        if (needs_ready && comm_->job_state == ncclInProgress) {
            note_violation(std::string(call) + " before the last call was ready on " +
                           name_of(comm_));
            good_ = false;
        }
        if (comm_->abort_flag && needs_ready) {
            note_violation(std::string(call) + " after abort of " + name_of(comm_));
            good_ = false;
        }
    }
    ~Visit() { --comm_->inside; }
    Visit(const Visit&) = delete;
    Visit& operator=(const Visit&) = delete;

    [[nodiscard]] bool good() const { return good_; }

   private:
    ncclComm_t comm_;
    bool good_ = true;
};

ncclResult_t launch_group() {
    ncclResult_t result = ncclSuccess;
    void* const profiled = std::exchange(open_group.profiled, nullptr);
    if (profiled != nullptr) {
        open_group.operations.begin()->first->profiler.stop_group(profiled);
    }
    for (auto& [comm, queued] : std::exchange(open_group.operations, {})) {
        const Visit visit(comm, "launch", false);
        result = comm->begin_job(
            [owner = comm, operations = std::move(queued.first), stream = queued.second] {
                return owner->enqueue(operations, stream);
            });
    }
    for (const ncclComm_t comm : std::exchange(open_group.aborted, {})) {
        comm->close();
        note("free " + name_of(comm));
    }
    return result;
}

int version() {
    const int wanted = faults().version;
    return wanted != 0 ? wanted : kVersion;
}

bool is_float8(const Operation& operation) {
    return operation.dtype == static_cast<std::uint32_t>(ncclFloat8e4m3) ||
           operation.dtype == static_cast<std::uint32_t>(ncclFloat8e5m2);
}

/// NCCL carries out a world of one by a kernel of its own, which has no 8-bit floats. It makes an
/// average of floats a premultiplied sum.
bool is_beyond_one_rank(ncclComm_t comm, const Operation& operation, bool averages) {
    return comm->world_size == 1 && is_float8(operation) && (averages || !operation.factor.empty());
}

bool is_stream_captured(cudaStream_t stream) {
    const auto* const own = reinterpret_cast<const StandInStream*>(stream);
    return own->is_captured(own);
}

ProfiledOperation profiled(const Operation& operation, std::string_view call, int ranks) {
    static const std::map<std::string_view, const char*> names{
        {"all_reduce", "AllReduce"},
        {"reduce", "Reduce"},
        {"broadcast", "Broadcast"},
        {"reduce_scatter", "ReduceScatter"},
        {"all_gather", "AllGather"},
        {"all_to_all", "AlltoAll"},
        {"gather", "Gather"},
        {"scatter", "Scatter"},
        {"send", "Send"},
        {"recv", "Recv"},
    };
    const bool is_message = operation.kind != FrameKind::collective;
    return {.function = names.at(call),
            .is_message = is_message,
            .dtype = operation.dtype,
            .count = operation.op == Collective::reduce_scatter && !is_message
                         ? operation.count / static_cast<std::size_t>(ranks)
                         : operation.count,
            .peer = operation.root};
}

ncclResult_t add(ncclComm_t comm, const char* call, Operation operation, cudaStream_t stream) {
    const Visit visit(comm, call);
    if (!visit.good() || stream == nullptr) {
        return ncclInvalidArgument;
    }
    const bool averages = operation.reduction == ncclAvg;
    const auto factor = comm->factors.find(static_cast<int>(operation.reduction));
    if (factor != comm->factors.end()) {
        operation.factor = factor->second;
        operation.reduction = ncclSum;
    }
    note(std::string(call) + " " + name_of(comm));
    if (is_float8(operation) && version() < kFloat8Since) {
        note_violation(std::string(call) + " of a type that this version has not");
        return ncclInvalidArgument;
    }
    if (is_beyond_one_rank(comm, operation, averages)) {
        comm->async_error = ncclInvalidArgument;
        return ncclInvalidArgument;
    }
    const bool is_captured = is_stream_captured(stream);
    if (open_group.profiled == nullptr) {
        open_group.profiled = comm->profiler.start_group(is_captured);
    }
    operation.profiled = profiled(operation, call, comm->world_size);
    operation.profiled.call =
        comm->profiler.call(open_group.profiled, operation.profiled, is_captured);
    auto& queued = open_group.operations[comm];
    queued.first.push_back(std::move(operation));
    queued.second = reinterpret_cast<StandInStream*>(stream);
    // As in NCCL, a call in a group may return that a non-blocking communicator is in progress.
    return open_group.depth > 0 ? ncclInProgress : launch_group();
}

Operation collective(Collective op, const void* input, std::size_t input_count, void* output,
                     ncclDataType_t type, int root = 0, ncclRedOp_t reduction = ncclSum) {
    return {.op = op,
            .dtype = static_cast<std::uint32_t>(type),
            .reduction = static_cast<std::uint32_t>(reduction),
            .root = root,
            .input = input,
            .input_bytes = input_count * size_of(static_cast<std::uint32_t>(type)),
            .output = output,
            .count = input_count};
}

ncclResult_t begin_init(ncclComm_t* into, int world_size, int rank, int ids, const ncclUniqueId* id,
                        const ncclConfig_t* config) {
    note("init rank=" + std::to_string(rank) + " ids=" + std::to_string(ids) +
         " id=" + std::string(id->internal));
    auto* const comm = new ncclComm(id->internal, config->blocking != 0);
    if (comm->blocking) {
        note("blocking " + name_of(comm));
    }
    comm->rank = rank;
    comm->world_size = world_size;
    std::atomic_ref(*into).store(comm);
    return comm->begin_job([comm] { return comm->connect(comm->abort_flag); });
}

}  // namespace

ncclResult_t ncclGetVersion(int* version) {
    *version = ::version();
    return ncclSuccess;
}

const char* ncclGetErrorString(ncclResult_t result) {
    switch (result) {
        case ncclSuccess:
            return "no error";
        case ncclRemoteError:
            return "remote process exited or there was a network error";
        case ncclInvalidArgument:
            return "invalid argument";
        case ncclInProgress:
            return "in progress";
        default:
            return "internal error";
    }
}

const char* ncclGetLastError(ncclComm_t /*comm*/) {
    return "";
}

ncclResult_t ncclGetUniqueId(ncclUniqueId* id) {
    const std::string name = start_hub();
    std::memset(id, 0, sizeof *id);
    std::memcpy(id->internal, name.data(), name.size());
    note("unique_id " + name);
    return name.empty() ? ncclSystemError : ncclSuccess;
}

ncclResult_t ncclCommInitRankConfig(ncclComm_t* comm, int nranks, ncclUniqueId id, int rank,
                                    ncclConfig_t* config) {
    return begin_init(comm, nranks, rank, 1, &id, config);
}

ncclResult_t ncclCommInitRankScalable(ncclComm_t* comm, int nranks, int rank, int n_ids,
                                      ncclUniqueId* ids, ncclConfig_t* config) {
    return begin_init(comm, nranks, rank, n_ids, ids, config);
}

ncclResult_t ncclCommSplit(ncclComm_t comm, int color, int key, ncclComm_t* child,
                           ncclConfig_t* /*config*/) {
    const Visit visit(comm, "split");
    if (!visit.good()) {
        return ncclInvalidArgument;
    }
    note("split " + name_of(comm) + " color=" + std::to_string(color));
    *child = nullptr;
    const ncclResult_t begun = comm->begin_job([=] { return comm->split(color, key, child); });
    // As NCCL up to 2.30, which says success while the split goes on.
    return begun == ncclInProgress ? ncclSuccess : begun;
}

ncclResult_t ncclCommCount(const ncclComm_t comm, int* count) {
    const Visit visit(comm, "count");
    *count = faults().split_wrong ? comm->world_size + 1 : comm->world_size;
    return visit.good() ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommUserRank(const ncclComm_t comm, int* rank) {
    const Visit visit(comm, "user_rank");
    *rank = comm->rank;
    return visit.good() ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommGetAsyncError(ncclComm_t comm, ncclResult_t* error) {
    const Visit visit(comm, "get_async_error", false);
    const int job = comm->job_state;
    const int own = comm->async_error;
    *error = static_cast<ncclResult_t>(job == ncclSuccess ? own : job);
    if (job != ncclInProgress && !comm->freed) {
        comm->join_job();
    }
    return ncclSuccess;
}

ncclResult_t ncclCommFinalize(ncclComm_t comm) {
    const Visit visit(comm, "finalize");
    if (!visit.good() || std::exchange(comm->finalized, true)) {
        return ncclInvalidArgument;
    }
    note("finalize " + name_of(comm));
    return comm->begin_job([comm] {
        comm->say_goodbye();
        return ncclSuccess;
    });
}

ncclResult_t ncclCommDestroy(ncclComm_t comm) {
    const Visit visit(comm, "destroy");
    if (!visit.good()) {
        return ncclInvalidArgument;
    }
    if (!comm->finalized) {
        note_violation("destroy of " + name_of(comm) + " before finalize");
    }
    note("destroy " + name_of(comm));
    comm->close();
    return ncclSuccess;
}

ncclResult_t ncclCommAbort(ncclComm_t comm) {
    const Visit visit(comm, "abort", false);
    if (!visit.good()) {
        return ncclInvalidArgument;
    }
    note("abort_flag " + name_of(comm));
    comm->abort_flag = true;
    comm->join_job();
    open_group.aborted.push_back(comm);
    return open_group.depth > 0 ? ncclSuccess : launch_group();
}

ncclResult_t ncclGroupStart() {
    ++open_group.depth;
    return ncclSuccess;
}

ncclResult_t ncclGroupEnd() {
    if (--open_group.depth > 0) {
        return ncclSuccess;
    }
    for (const ncclComm_t comm : open_group.aborted) {
        if (comm->inside != 0) {
            note_violation("free of " + name_of(comm) + " while a thread is in a call on it");
        }
    }
    return launch_group();
}

ncclResult_t ncclRedOpCreatePreMulSum(ncclRedOp_t* op, void* scalar, ncclDataType_t type,
                                      ncclScalarResidence_t /*residence*/, ncclComm_t comm) {
    const Visit visit(comm, "red_op_create");
    const std::size_t bytes = size_of(static_cast<std::uint32_t>(type));
    std::vector<std::byte>& factor = comm->factors[comm->next_reduction];
    factor.resize(bytes);
    std::memcpy(factor.data(), scalar, bytes);
    *op = static_cast<ncclRedOp_t>(comm->next_reduction++);
    note("red_op_create " + name_of(comm));
    return visit.good() ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclRedOpDestroy(ncclRedOp_t op, ncclComm_t comm) {
    const Visit visit(comm, "red_op_destroy");
    note("red_op_destroy " + name_of(comm));
    return comm->factors.erase(static_cast<int>(op)) == 1 ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclAllReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclRedOp_t op, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, "all_reduce",
               collective(Collective::all_reduce, input, count, output, type, 0, op), stream);
}

// NOLINTNEXTLINE(readability-function-size): the signature is NCCL's.
ncclResult_t ncclReduce(const void* input, void* output, std::size_t count, ncclDataType_t type,
                        ncclRedOp_t op, int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, "reduce", collective(Collective::reduce, input, count, output, type, root, op),
               stream);
}

ncclResult_t ncclReduceScatter(const void* input, void* output, std::size_t count,
                               ncclDataType_t type, ncclRedOp_t op, ncclComm_t comm,
                               cudaStream_t stream) {
    const std::size_t all = count * static_cast<std::size_t>(comm->world_size);
    return add(comm, "reduce_scatter",
               collective(Collective::reduce_scatter, input, all, output, type, 0, op), stream);
}

ncclResult_t ncclBroadcast(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, "broadcast",
               collective(Collective::broadcast, input, count, output, type, root), stream);
}

ncclResult_t ncclAllGather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                           ncclComm_t comm, cudaStream_t stream) {
    return add(comm, "all_gather", collective(Collective::all_gather, input, count, output, type),
               stream);
}

ncclResult_t ncclGather(const void* input, void* output, std::size_t count, ncclDataType_t type,
                        int root, ncclComm_t comm, cudaStream_t stream) {
    return add(comm, "gather", collective(Collective::gather, input, count, output, type, root),
               stream);
}

ncclResult_t ncclScatter(const void* input, void* output, std::size_t count, ncclDataType_t type,
                         int root, ncclComm_t comm, cudaStream_t stream) {
    const std::size_t rows = comm->rank == root ? static_cast<std::size_t>(comm->world_size) : 0;
    return add(comm, "scatter",
               collective(Collective::scatter, input, count * rows, output, type, root), stream);
}

ncclResult_t ncclAlltoAll(const void* input, void* output, std::size_t count, ncclDataType_t type,
                          ncclComm_t comm, cudaStream_t stream) {
    const std::size_t all = count * static_cast<std::size_t>(comm->world_size);
    return add(comm, "all_to_all", collective(Collective::all_to_all, input, all, output, type),
               stream);
}

ncclResult_t ncclSend(const void* input, std::size_t count, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    Operation send = collective(Collective::broadcast, input, count, nullptr, type, peer);
    send.kind = FrameKind::send;
    return add(comm, "send", std::move(send), stream);
}

ncclResult_t ncclRecv(void* output, std::size_t /*count*/, ncclDataType_t type, int peer,
                      ncclComm_t comm, cudaStream_t stream) {
    Operation recv = collective(Collective::broadcast, nullptr, 0, output, type, peer);
    recv.kind = FrameKind::recv;
    return add(comm, "recv", std::move(recv), stream);
}

ncclResult_t ncclMemAlloc(void** memory, std::size_t bytes) {
    const std::lock_guard lock(blocks_mutex);
    Block block{.bytes = bytes,
                .storage = std::vector<std::byte>(2 * kPage + bytes + kPage, kGuard)};
    const auto address = reinterpret_cast<std::uintptr_t>(block.storage.data());
    block.data = block.storage.data() + (kPage - address % kPage) + kAlignment;
    *memory = block.data;
    blocks.push_back(std::move(block));
    note("mem_alloc");
    return ncclSuccess;
}

ncclResult_t ncclMemFree(void* memory) {
    const std::lock_guard lock(blocks_mutex);
    note("mem_free");
    const auto found = std::ranges::find(blocks, memory, &Block::data);
    if (found == blocks.end()) {
        note_violation("mem_free of memory that is not NCCL's");
        return ncclInvalidArgument;
    }
    const auto before = static_cast<std::size_t>(found->data - found->storage.data());
    const auto guard = std::span(found->storage).subspan(before + found->bytes);
    if (!std::ranges::all_of(guard, [](std::byte byte) { return byte == kGuard; })) {
        note_violation("a write beyond the end of memory");
    }
    blocks.erase(found);
    return ncclSuccess;
}

ncclResult_t ncclCommRegister(ncclComm_t comm, void* memory, std::size_t /*bytes*/, void** handle) {
    const Visit visit(comm, "register");
    *handle = memory;
    note("register " + name_of(comm));
    return visit.good() ? ncclSuccess : ncclInvalidArgument;
}

ncclResult_t ncclCommDeregister(ncclComm_t comm, void* /*handle*/) {
    const Visit visit(comm, "deregister");
    note("deregister " + name_of(comm));
    return visit.good() ? ncclSuccess : ncclInvalidArgument;
}
