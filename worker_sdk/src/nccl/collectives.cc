// SPDX-License-Identifier: Apache-2.0
// The group's operations in NCCL's terms. A count of zero asks NCCL nothing, on all ranks alike.
#include <regroup/error.h>
#include <regroup/process_group.h>

#include <cstddef>
#include <optional>
#include <string>
#include <utility>

#include "worker_sdk/src/group/request.h"
#include "worker_sdk/src/group/rows.h"
#include "worker_sdk/src/nccl/nccl_process_group.h"

namespace regroup::nccl {
namespace {

/// The calls of NCCL for one request of one rank.
class Launch {
   public:
    Launch(const Backend& backend, const OperationRequest& request, const Bounds& bounds,
           void* barrier_word)
        : api_(backend.api),
          runtime_(backend.runtime),
          request_(request),
          count_(request.count(bounds.world_size)),
          item_(item_bytes(request.row().dtype)),
          type_(is_reduction(request.kind) ? nccl_type(request.row().dtype)
                                           : nccl_moved_type(request.row().dtype)),
          peer_(static_cast<int>(request.peer)),
          rank_(bounds.rank),
          is_root_(request.peer == bounds.rank),
          world_size_(bounds.world_size),
          barrier_word_(barrier_word) {}

    ncclResult_t operator()(ncclComm_t comm, ncclRedOp_t reduction, cudaStream_t stream) const {
        const void* const input = request_.input.data;
        void* const output = request_.output.data;
        if (request_.kind == OperationKind::barrier) {
            return api_.all_reduce(barrier_word_, barrier_word_, 1, ncclInt32, ncclSum, comm,
                                   stream);
        }
        if (world_size_ == 1 && is_float8(request_.row().dtype)) {
            // NCCL's kernel for a world of one has no 8-bit floats. NCCL needs that kernel to
            // multiply, and multiplies for an average, too.
            if (is_reduction(request_.kind) && request_.reduction.premultiplied()) {
                return scale(stream);
            }
            reduction = reduction == ncclAvg ? ncclSum : reduction;
        }
        if (request_.is_uneven()) {
            return uneven(comm, reduction, stream);
        }
        if (count_ == 0) {
            return ncclSuccess;
        }
        switch (request_.kind) {
            case OperationKind::all_reduce:
                return api_.all_reduce(input, output, count_, type_, reduction, comm, stream);
            case OperationKind::reduce:
                return api_.reduce(input, is_root_ ? output : nullptr, count_, type_, reduction,
                                   peer_, comm, stream);
            case OperationKind::reduce_scatter:
                return api_.reduce_scatter(input, output, count_, type_, reduction, comm, stream);
            case OperationKind::broadcast:
                return api_.broadcast(input, output, count_, type_, peer_, comm, stream);
            case OperationKind::all_gather:
                return api_.all_gather(input, output, count_, type_, comm, stream);
            case OperationKind::gather:
                return gather(comm, stream);
            case OperationKind::scatter:
                return scatter(comm, stream);
            case OperationKind::all_to_all:
                return all_to_all(comm, stream);
            case OperationKind::send:
                return api_.send(input, count_, type_, peer_, comm, stream);
            case OperationKind::recv:
                return api_.recv(output, count_, type_, peer_, comm, stream);
            case OperationKind::barrier:
            case OperationKind::form:
            case OperationKind::new_group:
                break;
        }
        return ncclInvalidUsage;
    }

   private:
    ncclResult_t scale(cudaStream_t stream) const {
        const std::size_t count = request_.is_uneven() ? request_.counts.front() : count_;
        if (count == 0) {
            return ncclSuccess;
        }
        try {
            runtime_.scale_float8(request_.output.data, request_.input.data, request_.row().dtype,
                                  count, static_cast<float>(request_.reduction.factor), stream);
            return ncclSuccess;
        } catch (const Error&) {
            return ncclUnhandledCudaError;
        }
    }

    // Libraries before 2.28 have none of these three.
    ncclResult_t gather(ncclComm_t comm, cudaStream_t stream) const {
        void* const output = is_root_ ? request_.output.data : nullptr;
        if (api_.gather != nullptr) {
            return api_.gather(request_.input.data, output, count_, type_, peer_, comm, stream);
        }
        const ncclResult_t sent =
            api_.send(request_.input.data, count_, type_, peer_, comm, stream);
        if (!is_root_ || !is_good(sent)) {
            return sent;
        }
        return for_each_rank([&](std::uint32_t rank) {
            return receive_row(comm, stream, rows_of(request_.output), rank);
        });
    }

    ncclResult_t scatter(ncclComm_t comm, cudaStream_t stream) const {
        const void* const input = is_root_ ? request_.input.data : nullptr;
        void* const output = request_.output.data;
        if (api_.scatter != nullptr) {
            return api_.scatter(input, output, count_, type_, peer_, comm, stream);
        }
        const ncclResult_t got = api_.recv(output, count_, type_, peer_, comm, stream);
        if (!is_root_ || !is_good(got)) {
            return got;
        }
        return for_each_rank([&](std::uint32_t rank) {
            return send_row(comm, stream, rows_of(request_.input), rank);
        });
    }

    ncclResult_t all_to_all(ncclComm_t comm, cudaStream_t stream) const {
        if (api_.all_to_all != nullptr && !request_.is_uneven()) {
            return api_.all_to_all(request_.input.data, request_.output.data, count_, type_, comm,
                                   stream);
        }
        const Rows input = rows_of(request_.input);
        const Rows output(request_.output.data, item_, count_, request_.output_counts);
        return for_each_rank([&](std::uint32_t rank) {
            const ncclResult_t sent = send_row(comm, stream, input, rank);
            return is_good(sent) ? receive_row(comm, stream, output, rank) : sent;
        });
    }

    // NCCL has only rows of one length. In one group, the calls for the rows run at the same time.
    ncclResult_t uneven(ncclComm_t comm, ncclRedOp_t reduction, cudaStream_t stream) const {
        if (request_.kind == OperationKind::all_to_all) {
            return all_to_all(comm, stream);
        }
        const bool is_gathered = request_.kind == OperationKind::all_gather;
        const Rows rows = rows_of(is_gathered ? ConstTensorView(request_.output) : request_.input);
        return for_each_rank([&](std::uint32_t rank) {
            const auto peer = static_cast<int>(rank);
            const bool is_mine = rank == rank_;
            if (rows.count(rank) == 0) {
                return ncclSuccess;
            }
            if (is_gathered) {
                return api_.broadcast(is_mine ? request_.input.data : rows.data(rank),
                                      rows.data(rank), rows.count(rank), type_, peer, comm, stream);
            }
            return api_.reduce(rows.data(rank), is_mine ? request_.output.data : nullptr,
                               rows.count(rank), type_, reduction, peer, comm, stream);
        });
    }

    ncclResult_t send_row(ncclComm_t comm, cudaStream_t stream, const Rows& rows,
                          std::uint32_t rank) const {
        return rows.count(rank) == 0 ? ncclSuccess
                                     : api_.send(rows.data(rank), rows.count(rank), type_,
                                                 static_cast<int>(rank), comm, stream);
    }
    ncclResult_t receive_row(ncclComm_t comm, cudaStream_t stream, const Rows& rows,
                             std::uint32_t rank) const {
        return rows.count(rank) == 0 ? ncclSuccess
                                     : api_.recv(rows.data(rank), rows.count(rank), type_,
                                                 static_cast<int>(rank), comm, stream);
    }

    [[nodiscard]] Rows rows_of(ConstTensorView buffer) const {
        return {buffer.data, item_, count_, request_.counts};
    }

    /// The first result that is not a success of the calls for each rank.
    template <class Body>
    ncclResult_t for_each_rank(const Body& body) const {
        for (std::uint32_t rank = 0; rank < world_size_; ++rank) {
            const ncclResult_t result = body(rank);
            if (!is_good(result)) {
                return result;
            }
        }
        return ncclSuccess;
    }

    const NcclApi& api_;
    cuda::DeviceRuntime& runtime_;
    OperationRequest request_;
    std::size_t count_;
    std::size_t item_;
    ncclDataType_t type_;
    int peer_;
    std::uint32_t rank_;
    bool is_root_;
    std::uint32_t world_size_;
    void* barrier_word_;
};

/// NCCL starts the operations of a batch together, in one stream.
void check_stream(const std::vector<Call>& batch, const OperationRequest& request) {
    if (!batch.empty() && batch.front().operation.options.stream != request.options.stream) {
        throw Error(Errc::invalid_argument,
                    std::string(name_of(request.kind)) +
                        ": another stream than that of the batch's first operation");
    }
}

void check_operator(const std::string& operation, ReduceOp op) {
    if (is_bitwise(op)) {
        throw Error(Errc::invalid_argument, operation + ": " + std::string(to_string(op)) +
                                                " is not an operator of NCCL; use the back end "
                                                "\"cpu\"");
    }
}

}  // namespace

Work NcclProcessGroup::issue(const OperationRequest& request) {
    check(request, *this);
    if (is_reduction(request.kind)) {
        check_float8(name_of(request.kind), request.input.dtype, bounds_);
        check_operator(name_of(request.kind), request.reduction.op);
    }
    Call call{.operation = {.signature = signature_of(request, bounds_.world_size),
                            .options = request.options},
              .launch = Launch(backend_, request, bounds_, lane_->memory().barrier_word()),
              .work = lane_->in_flight().make_work()};
    if (is_reduction(request.kind)) {
        call.operation.reduction = request.reduction;
    }
    Work work(call.work);
    {
        const std::lock_guard lock(mutex_);
        if (batch_) {
            check_stream(*batch_, request);
            batch_->push_back(std::move(call));
            return work;
        }
    }
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    lane_->issuer().issue(std::move(calls));
    return work;
}

}  // namespace regroup::nccl
