// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/issuer.h"

#include <algorithm>
#include <utility>

#include "worker_sdk/src/base/flight_recorder.h"

namespace regroup::nccl {
namespace {

std::vector<Operation> operations_of(std::span<const Call> calls) {
    std::vector<Operation> operations;
    operations.reserve(calls.size());
    for (const Call& call : calls) {
        operations.push_back(call.operation);
    }
    return operations;
}

}  // namespace

Issuer::Issuer(const Backend& backend, const GroupIdentity& identity, Communicator& communicator,
               InFlight& in_flight)
    : backend_(backend),
      identity_(identity),
      communicator_(communicator),
      in_flight_(in_flight),
      default_stream_passed_(backend.runtime),
      own_stream_(backend.runtime.create_stream()) {}

Issuer::Numbers Issuer::number(std::vector<Call>& calls) const {
    Numbers last = issued_;
    for (Call& call : calls) {
        call.operation.signature.number =
            is_message(call.operation) ? ++last.message : ++last.collective;
    }
    return last;
}

void Issuer::record_issue(std::vector<Call>& calls) const {
    const Instant now = SteadyClock().now();
    for (Call& call : calls) {
        Operation& operation = call.operation;
        const Signature& signature = operation.signature;
        const FlightRecorder::Operation recorded{.name = name_of(signature.kind),
                                                 .number = signature.number,
                                                 .is_message = is_message(operation),
                                                 .is_send = signature.kind == OperationKind::send,
                                                 .peer = signature.peer,
                                                 .input_count = signature.count,
                                                 .output_count = signature.count,
                                                 .dtype = signature.dtype,
                                                 .timeout = identity_.timeout_of(operation)};
        operation.record = flight_recorder().issued(identity_.record, recorded, now);
        operation.report = identity_.report->issued(signature, now);
        if (identity_.round) {
            identity_.round->note_issued(recorded.name);
        }
    }
}

void Issuer::issue(std::vector<Call> calls) {
    const Numbers last = number(calls);
    if (!in_flight_.admit(calls)) {
        return;
    }
    // Calls that may throw come first: the next operation gets the same number then.
    const cuda::DeviceScope scope(backend_.runtime, identity_.device.index);
    void* const stream = begin_stream(calls.front().operation.options.stream);
    const bool capturing = backend_.runtime.is_capturing(stream);
    record_issue(calls);
    const InFlight::Issuing issuing(in_flight_, operations_of(calls));
    issued_ = last;
    if (auto failure = launch(calls, stream)) {
        in_flight_.track_failed(std::move(calls), std::move(*failure));
        return;
    }
    for (const Call& call : calls) {
        flight_recorder().started(call.operation.record, SteadyClock().now());
    }
    if (!capturing) {
        in_flight_.track(std::move(calls), stream);
        return;
    }
    // The state of a captured operation cannot be queried. An error in a replay ends the group.
    for (const Call& call : calls) {
        in_flight_.succeed(call, SteadyClock().now());
    }
}

/// The stream for the next operation, which begins after what the caller has put into it, or into
/// the default stream if no other was named.
void* Issuer::begin_stream(const std::optional<Stream>& stream) {
    if (const std::optional<Stream>& named = stream ? stream : user_stream_) {
        return named->handle;
    }
    backend_.runtime.record(default_stream_passed_.get(), nullptr);
    backend_.runtime.wait(own_stream_, default_stream_passed_.get());
    return own_stream_;
}

std::optional<GroupFailure> Issuer::make_reductions(std::span<const Call> calls,
                                                    std::vector<ncclRedOp_t>& reductions) {
    for (const Call& call : calls) {
        const std::optional<Reduction>& wanted = call.operation.reduction;
        ncclRedOp_t reduction = wanted ? nccl_reduction(wanted->op) : ncclSum;
        if (wanted && wanted->premultiplied()) {
            Scalar factor(wanted->factor, call.operation.signature.dtype);
            const CommReport made = communicator_.call([&](ncclComm_t comm) {
                return backend_.api.red_op_create_pre_mul_sum(
                    &reduction, factor.data(), nccl_type(call.operation.signature.dtype),
                    ncclScalarHostImmediate, comm);
            });
            if (made.state != CommState::ready) {
                return failure_of(made, call.operation);
            }
        }
        reductions.push_back(reduction);
    }
    return std::nullopt;
}

std::optional<GroupFailure> Issuer::launch(std::span<const Call> calls, void* stream) {
    const Operation& first = calls.front().operation;
    std::vector<ncclRedOp_t> reductions;
    if (auto failure = make_reductions(calls, reductions)) {
        return failure;
    }
    CommReport report = communicator_.launch([&](ncclComm_t comm) {
        ncclResult_t result = ncclSuccess;
        for (std::size_t i = 0; i < calls.size() && is_good(result); ++i) {
            result = calls[i].launch(comm, reductions[i], static_cast<cudaStream_t>(stream));
        }
        return result;
    });
    if (report.state == CommState::in_progress) {
        // The first operation with a peer waits until the peer connects.
        report = communicator_.await_ready(after(SteadyClock().now(), identity_.timeout_of(first)));
    }
    if (report.state != CommState::ready) {
        return failure_of(report, first);
    }
    for (const ncclRedOp_t reduction : reductions) {
        if (reduction >= ncclNumOps) {
            (void)communicator_.call(
                [&](ncclComm_t comm) { return backend_.api.red_op_destroy(reduction, comm); });
        }
    }
    return std::nullopt;
}

GroupFailure Issuer::failure_of(const CommReport& report, const Operation& operation) const {
    switch (report.state) {
        case CommState::gone:
            return in_flight_.failure().value_or(given_up());
        case CommState::in_progress:
            return identity_.expired(operation, "NCCL has not started it");
        default:
            return failure_of_nccl(report, describe(operation.signature));
    }
}

}  // namespace regroup::nccl
