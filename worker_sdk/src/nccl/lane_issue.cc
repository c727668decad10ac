// SPDX-License-Identifier: Apache-2.0
// The part of a lane that runs in the caller's thread: it puts operations into the stream.
#include <regroup/error.h>

#include <algorithm>
#include <future>
#include <memory>
#include <poll.h>
#include <sched.h>
#include <utility>

#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/nccl/lane.h"

namespace regroup::nccl {
namespace {

constexpr std::size_t kOutstandingMax = 65536;
/// The collectives that can be compared with those of other ranks.
constexpr std::size_t kCalledMax = 1024;

std::vector<Operation> operations_of(std::span<const Call> calls) {
    std::vector<Operation> operations;
    operations.reserve(calls.size());
    for (const Call& call : calls) {
        operations.push_back(call.operation);
    }
    return operations;
}

}  // namespace

/// Shows the watchdog the operation being issued, for the duration of a scope.
class Lane::IssuingScope {
   public:
    IssuingScope(Lane& lane, std::vector<Operation> operations) : lane_(lane) {
        const std::lock_guard lock(lane_.mutex_);
        for (const Operation& operation : operations) {
            if (!is_message(operation)) {
                lane_.called_.push_back(operation.signature);
            }
        }
        while (lane_.called_.size() > kCalledMax) {
            lane_.called_.pop_front();
        }
        lane_.issuing_ = Issuing{.operations = std::move(operations), .since = SteadyClock().now()};
    }
    ~IssuingScope() {
        const std::lock_guard lock(lane_.mutex_);
        lane_.issuing_.reset();
    }
    IssuingScope(const IssuingScope&) = delete;
    IssuingScope& operator=(const IssuingScope&) = delete;

   private:
    Lane& lane_;
};

void Backoff::pause() {
    constexpr int kYields = 50;
    constexpr long kLongest = 1'000'000;
    if (++turns_ <= kYields) {
        ::sched_yield();
        return;
    }
    // NCCL has no call to wait for this state.
    const timespec span{.tv_sec = 0, .tv_nsec = std::min(20'000L * (turns_ - kYields), kLongest)};
    (void)::ppoll(nullptr, 0, &span, nullptr);
}

Lane::Numbers Lane::number(std::vector<Call>& calls) const {
    Numbers last = issued_;
    for (Call& call : calls) {
        call.operation.signature.number =
            is_message(call.operation) ? ++last.message : ++last.collective;
    }
    return last;
}

void Lane::record_issue(std::vector<Call>& calls) const {
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
                                                 .timeout = timeout_of(operation)};
        operation.record = flight_recorder().issued(record_, recorded, now);
        if (identity_.round) {
            identity_.round->note_issued(recorded.name);
        }
    }
}

void Lane::note_done(const Call& call, Instant now) const {
    flight_recorder().completed(call.operation.record, now);
    if (identity_.round) {
        identity_.round->note_done();
    }
}

void Lane::issue(std::vector<Call> calls) {
    const Numbers last = number(calls);
    {
        const std::lock_guard lock(mutex_);
        if (failure_ || posted_) {
            fail(calls, failure_ ? *failure_ : *posted_);
            return;
        }
        if (outstanding_ + calls.size() > kOutstandingMax) {
            throw Error(Errc::overloaded, describe(calls.front().operation.signature) + place_ +
                                              ": " + std::to_string(outstanding_) +
                                              " operations are in flight; wait for some");
        }
    }
    // Calls that may throw come first: the next operation gets the same number then.
    const cuda::DeviceScope scope(backend_.runtime, identity_.device.index);
    void* const stream = begin_stream(calls.front().operation.options.stream);
    const bool capturing = backend_.runtime.is_capturing(stream);
    record_issue(calls);
    const IssuingScope issuing(*this, operations_of(calls));
    issued_ = last;
    if (auto failure = launch(calls, stream)) {
        // The watchdog ends the group and these calls: it may learn which rank is the cause.
        track(std::move(calls), std::nullopt);
        post(*failure);
        return;
    }
    for (const Call& call : calls) {
        flight_recorder().started(call.operation.record, SteadyClock().now());
    }
    if (capturing) {
        // The state of a captured operation cannot be queried. An error in a replay ends the group.
        for (const Call& call : calls) {
            note_done(call, SteadyClock().now());
            call.work->succeed();
        }
        return;
    }
    try {
        cuda::Event event = record(stream);
        track(std::move(calls), std::move(event));
    } catch (const Error& error) {
        const GroupFailure failure{error.code(), error.what(),
                                   describe(calls.front().operation.signature)};
        track(std::move(calls), std::nullopt);
        post(failure);
    }
}

/// The stream for the next operation, which begins after what the caller has put into it, or into
/// the default stream if no other was named.
void* Lane::begin_stream(const std::optional<Stream>& stream) {
    if (stream) {
        return stream->handle;
    }
    if (user_stream_) {
        return user_stream_->handle;
    }
    backend_.runtime.record(default_stream_passed_->get(), nullptr);
    backend_.runtime.wait(own_stream_, default_stream_passed_->get());
    return own_stream_;
}

std::optional<GroupFailure> Lane::make_reductions(std::span<const Call> calls,
                                                  std::vector<ncclRedOp_t>& reductions) {
    for (const Call& call : calls) {
        const std::optional<Reduction>& wanted = call.operation.reduction;
        ncclRedOp_t reduction = wanted ? nccl_reduction(wanted->op) : ncclSum;
        if (wanted && wanted->premultiplied()) {
            Scalar factor(wanted->factor, call.operation.signature.dtype);
            const CommReport made = communicator_->call([&](ncclComm_t comm) {
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

std::optional<GroupFailure> Lane::launch(std::span<const Call> calls, void* stream) {
    const Operation& first = calls.front().operation;
    std::vector<ncclRedOp_t> reductions;
    if (auto failure = make_reductions(calls, reductions)) {
        return failure;
    }
    CommReport report = communicator_->launch([&](ncclComm_t comm) {
        ncclResult_t result = ncclSuccess;
        for (std::size_t i = 0; i < calls.size() && is_good(result); ++i) {
            result = calls[i].launch(comm, reductions[i], static_cast<cudaStream_t>(stream));
        }
        return result;
    });
    if (report.state == CommState::in_progress) {
        // The first operation with a peer waits until the peer connects.
        report = await_ready(after(SteadyClock().now(), timeout_of(first)));
    }
    if (report.state != CommState::ready) {
        return failure_of(report, first);
    }
    for (const ncclRedOp_t reduction : reductions) {
        if (reduction >= ncclNumOps) {
            (void)communicator_->call(
                [&](ncclComm_t comm) { return backend_.api.red_op_destroy(reduction, comm); });
        }
    }
    return std::nullopt;
}

GroupFailure Lane::failure_of(const CommReport& report, const Operation& operation) {
    switch (report.state) {
        case CommState::gone:
            if (const auto failure = this->failure()) {
                return *failure;
            }
            return {Errc::fenced, "the group was given up", {}};
        case CommState::in_progress:
            return expired(operation, "NCCL has not started it");
        default:
            return failure_of_nccl(report, describe(operation.signature));
    }
}

void Lane::track(std::vector<Call> calls, std::optional<cuda::Event> event) {
    bool watchdog_rests = false;
    {
        const std::lock_guard lock(mutex_);
        if (failure_) {
            fail(calls, *failure_);
            return;
        }
        watchdog_rests = in_flight_.empty();
        outstanding_ += calls.size();
        in_flight_.push_back({.calls = std::move(calls),
                              .event = std::move(event),
                              .turn_began = SteadyClock().now()});
    }
    if (watchdog_rests) {
        watchdog_->ring();
    }
}

cuda::Event Lane::record(void* stream) {
    cuda::Event event = take_event();
    backend_.runtime.record(event.get(), stream);
    return event;
}

cuda::Event Lane::take_event() {
    {
        const std::lock_guard lock(mutex_);
        if (!free_events_.empty()) {
            cuda::Event event = std::move(free_events_.back());
            free_events_.pop_back();
            return event;
        }
    }
    return cuda::Event(backend_.runtime);
}

GroupFailure Lane::expired(const Operation& operation, const std::string& what) const {
    const Duration limit = timeout_of(operation);
    GroupFailure failure{Errc::deadline_exceeded, what + " within " + format_duration(limit),
                         describe(operation.signature)};
    if (is_message(operation)) {
        failure.cause += ": the other rank has not called it, or a stream holds it up";
    } else {
        // Unless the other ranks say otherwise.
        failure.cause += ": all ranks have called it, so a stream holds it up";
        failure.expired = {.number = operation.signature.number, .limit = limit};
    }
    return failure;
}

CommReport Lane::split(int color, int key) {
    const IssuingScope issuing(*this, {Operation{.signature = {.number = ++issued_.collective,
                                                               .kind = OperationKind::new_group}}});
    return complete(
        [color, key](Communicator& communicator) { return communicator.begin_split(color, key); },
        after(SteadyClock().now(), identity_.timeout));
}

bool Lane::has_expected_place() {
    auto count = static_cast<int>(identity_.members.size());
    auto rank = static_cast<int>(identity_.rank);
    const CommReport report = communicator_->call([&](ncclComm_t comm) {
        const ncclResult_t counted = backend_.api.comm_count(comm, &count);
        return is_good(counted) ? backend_.api.comm_user_rank(comm, &rank) : counted;
    });
    return report.state == CommState::gone ||
           (report.state == CommState::ready && rank == static_cast<int>(identity_.rank) &&
            count == static_cast<int>(identity_.members.size()));
}

CommReport Lane::complete(Begin begin, Instant deadline) {
    CommReport report;
    if (backend_.blocking) {
        const auto call = std::make_shared<std::packaged_task<CommReport()>>(
            [&runtime = backend_.runtime, device = identity_.device.index,
             communicator = communicator_, work = std::move(begin)] {
                try {
                    runtime.set_device(device);
                    runtime.stay_out_of_captures();
                } catch (const Error&) {
                    // The GPU is lost; NCCL will say so.
                }
                return work(*communicator);
            });
        std::future<CommReport> ended = call->get_future();
        try {
            start_helper_thread("regroup-nccl", [call] { (*call)(); }).detach();
        } catch (const Error& error) {
            return {.state = CommState::failed,
                    .result = ncclInternalError,
                    .text = std::string("no thread can be started for the call: ") + error.what()};
        }
        if (ended.wait_until(deadline) != std::future_status::ready) {
            return {.state = CommState::in_progress};
        }
        report = ended.get();
    } else {
        report = begin(*communicator_);
    }
    const bool begun = report.state == CommState::ready || report.state == CommState::in_progress;
    return begun ? await_ready(deadline) : report;
}

CommReport Lane::await_ready(Instant deadline) {
    Backoff backoff;
    while (true) {
        CommReport report = communicator_->poll();
        if (report.state != CommState::in_progress || SteadyClock().now() >= deadline) {
            return report;
        }
        backoff.pause();
    }
}

std::optional<GroupFailure> Lane::await_end() const {
    // Much longer than the watchdog waits for a rank's name (kNameMax).
    constexpr Duration kLongest = std::chrono::seconds(2);
    const Instant deadline = after(SteadyClock().now(), kLongest);
    Backoff backoff;
    while (true) {
        {
            const std::lock_guard lock(mutex_);
            if (failure_ || SteadyClock().now() >= deadline) {
                return failure_;
            }
        }
        backoff.pause();
    }
}

}  // namespace regroup::nccl
