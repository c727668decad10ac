// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/lane.h"

#include <regroup/error.h>

#include <algorithm>
#include <cerrno>
#include <poll.h>
#include <sched.h>
#include <utility>

namespace regroup::nccl {
namespace {

constexpr std::size_t kOutstandingMax = 65536;
constexpr std::size_t kSpareEventsMax = 256;
/// How long an operation that needs a rank which has left may still be on its last bytes.
constexpr Duration kLastBytes = std::chrono::seconds(5);

std::string place_of(const GroupIdentity& identity) {
    return " on " + to_string(identity.device) +
           (identity.name == ProcessGroupOptions().name ? ""
                                                        : " in group \"" + identity.name + "\"");
}

}  // namespace

void Backoff::pause() {
    constexpr int kYields = 50;
    constexpr long kLongest = 1'000'000;
    if (++turns_ <= kYields) {
        ::sched_yield();
        return;
    }
    // NCCL offers nothing to wait for.
    const timespec span{.tv_sec = 0, .tv_nsec = std::min(20'000L * (turns_ - kYields), kLongest)};
    (void)::ppoll(nullptr, 0, &span, nullptr);
}

Errc errc_of(ncclResult_t result) noexcept {
    switch (result) {
        case ncclRemoteError:
        case ncclSystemError:
            return Errc::disconnected;
        case ncclInvalidArgument:
        case ncclInvalidUsage:
            return Errc::invalid_argument;
        default:
            return Errc::system;
    }
}

Lane::Lane(const Backend& backend, GroupIdentity identity, std::shared_ptr<Wakeup> watchdog)
    : backend_(backend),
      identity_(std::move(identity)),
      place_(place_of(identity_)),
      watchdog_(std::move(watchdog)),
      communicator_(backend.api) {
    constexpr std::size_t kWord = 256;
    const cuda::DeviceScope scope(backend_.runtime, identity_.device.index);
    default_stream_passed_.emplace(backend_.runtime);
    barrier_word_ = backend_.runtime.allocate(kWord);
    if (barrier_word_ == nullptr) {
        throw Error(Errc::system,
                    to_string(identity_.device) + " has not even 256 bytes of memory left");
    }
    backend_.runtime.clear(barrier_word_, kWord);
    own_stream_ = backend_.runtime.create_stream();
}

Lane::~Lane() {
    if (own_stream_ != nullptr) {
        backend_.runtime.destroy_stream(own_stream_);
    }
    backend_.runtime.free(barrier_word_);
}

std::optional<GroupFailure> Lane::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_ ? failure_ : posted_;
}

void Lane::post(GroupFailure failure) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (failure_ || posted_) {
            return;
        }
        posted_ = std::move(failure);
    }
    watchdog_->ring();
}

bool Lane::is_idle() const {
    const std::lock_guard lock(mutex_);
    return in_flight_.empty();
}

/// The failure of the group as seen by one operation.
std::string Lane::explain(const GroupFailure& failure, const Operation& operation) const {
    const std::string text = describe(operation);
    const bool own = failure.operation.empty() || failure.operation == text;
    return text + place_ + ": " +
           (own ? "" : "the group has ended with " + failure.operation + ": ") + failure.cause;
}

void Lane::fail(std::span<const Call> calls, const GroupFailure& failure) const {
    for (const Call& call : calls) {
        call.work->fail(failure.code, explain(failure, call.operation));
    }
}

void Lane::number(std::vector<Call>& calls) {
    std::uint64_t next = issued_;
    for (Call& call : calls) {
        call.operation.number = ++next;
    }
}

void Lane::issue(std::vector<Call> calls) {
    number(calls);
    {
        const std::lock_guard lock(mutex_);
        if (failure_ || posted_) {
            fail(calls, failure_ ? *failure_ : *posted_);
            return;
        }
        if (outstanding_ + calls.size() > kOutstandingMax) {
            throw Error(Errc::overloaded, describe(calls.front().operation) + place_ + ": " +
                                              std::to_string(outstanding_) +
                                              " operations are in flight; wait for some");
        }
        issuing_ = calls.front().operation;
    }
    const cuda::DeviceScope scope(backend_.runtime, identity_.device.index);
    void* const stream = begin_stream();
    const bool capturing = backend_.runtime.is_capturing(stream);
    issued_ += calls.size();
    if (auto failure = launch(calls, stream)) {
        // The watchdog ends the group, and with it these calls: it may learn who is to blame.
        track(std::move(calls), std::nullopt);
        post(*failure);
        return;
    }
    if (capturing) {
        // Nothing can be asked about a captured operation; what goes wrong in a replay ends the
        // group.
        for (const Call& call : calls) {
            call.work->succeed();
        }
        const std::lock_guard lock(mutex_);
        issuing_.reset();
        return;
    }
    try {
        cuda::Event event = record(stream);
        track(std::move(calls), std::move(event));
    } catch (const Error& error) {
        const GroupFailure failure{error.code(), error.what(), describe(calls.front().operation)};
        track(std::move(calls), std::nullopt);
        post(failure);
    }
}

/// The stream for the next operation, which begins after what the caller has put into it, or into
/// the default stream if no other was named.
void* Lane::begin_stream() {
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
            Scalar factor(wanted->factor, call.operation.dtype);
            const CommReport made = communicator_.call([&](ncclComm_t comm) {
                return backend_.api.red_op_create_pre_mul_sum(&reduction, factor.data(),
                                                              nccl_type(call.operation.dtype),
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
    CommReport report = communicator_.launch([&](ncclComm_t comm) {
        ncclResult_t result = ncclSuccess;
        for (std::size_t i = 0; i < calls.size() && result == ncclSuccess; ++i) {
            result = calls[i].launch(comm, reductions[i], static_cast<cudaStream_t>(stream));
        }
        return result;
    });
    if (report.state == CommState::in_progress) {
        // The first operation with a peer connects to it, which waits until it comes.
        report = await_ready(after(SteadyClock().now(), identity_.timeout));
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

GroupFailure Lane::failure_of(const CommReport& report, const Operation& operation) {
    switch (report.state) {
        case CommState::gone:
            if (const auto failure = this->failure()) {
                return *failure;
            }
            return {Errc::fenced, "the group was given up", {}};
        case CommState::in_progress:
            return {Errc::deadline_exceeded,
                    "NCCL has not started it within " + format_duration(identity_.timeout) +
                        ": a peer has not come to it",
                    describe(operation)};
        default:
            return {errc_of(report.result), "NCCL: " + report.text, describe(operation)};
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
        issuing_.reset();
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
        if (!spare_events_.empty()) {
            cuda::Event event = std::move(spare_events_.back());
            spare_events_.pop_back();
            return event;
        }
    }
    return cuda::Event(backend_.runtime);
}

CommReport Lane::await_ready(Instant deadline) {
    Backoff backoff;
    while (true) {
        CommReport report = communicator_.poll();
        if (report.state != CommState::in_progress || SteadyClock().now() >= deadline) {
            return report;
        }
        backoff.pause();
    }
}

void Lane::complete_front(Instant now, std::vector<std::shared_ptr<Work::State>>& done) {
    InFlight& front = in_flight_.front();
    for (Call& call : front.calls) {
        done.push_back(std::move(call.work));
    }
    outstanding_ -= front.calls.size();
    if (spare_events_.size() < kSpareEventsMax) {
        spare_events_.push_back(std::move(*front.event));
    }
    in_flight_.pop_front();
    if (!in_flight_.empty()) {
        in_flight_.front().turn_began = std::max(in_flight_.front().turn_began, now);
    }
}

std::optional<GroupFailure> Lane::check(Instant now) {
    // First what NCCL says: its kernels also end, without a result, when it gives up.
    const CommReport report = communicator_.glance();
    std::vector<std::shared_ptr<Work::State>> done;
    std::optional<GroupFailure> failure;
    {
        const std::lock_guard lock(mutex_);
        if (failure_) {
            return std::nullopt;
        }
        if (posted_) {
            // What NCCL reports while a later operation is issued is of the oldest one in flight.
            if (!posted_->operation.empty() && posted_->code != Errc::deadline_exceeded) {
                posted_->operation = oldest();
            }
            return posted_;
        }
        if (report.state == CommState::failed) {
            return GroupFailure{errc_of(report.result), "NCCL: " + report.text, oldest()};
        }
        try {
            while (!in_flight_.empty() && in_flight_.front().event &&
                   backend_.runtime.has_passed(in_flight_.front().event->get())) {
                complete_front(now, done);
            }
            failure = overdue(now);
        } catch (const Error& error) {
            failure = {error.code(), error.what(), oldest()};
        }
    }
    for (const std::shared_ptr<Work::State>& work : done) {
        work->succeed();
    }
    return failure;
}

/// What was issued first of all that is not complete; empty if nothing is in flight.
std::string Lane::oldest() const {
    if (!in_flight_.empty()) {
        return describe(in_flight_.front().calls.front().operation);
    }
    return issuing_ ? describe(*issuing_) : "";
}

std::optional<GroupFailure> Lane::overdue(Instant now) const {
    if (in_flight_.empty()) {
        return std::nullopt;
    }
    const InFlight& front = in_flight_.front();
    const Operation& operation = front.calls.front().operation;
    if (now - front.turn_began >= identity_.timeout) {
        return GroupFailure{Errc::deadline_exceeded,
                            "not complete within " + format_duration(identity_.timeout) +
                                ": a peer has not joined in, or the stream holds it up",
                            describe(operation)};
    }
    for (const auto& [rank, since] : departed_) {
        const bool needed = std::ranges::any_of(front.calls, [who = rank](const Call& call) {
            return !is_message(call.operation) || call.operation.peer == who;
        });
        if (needed && now - std::max(since, front.turn_began) >= kLastBytes) {
            return GroupFailure{Errc::disconnected,
                                "rank " + std::to_string(rank) + " has left the group",
                                describe(operation)};
        }
    }
    return std::nullopt;
}

Duration Lane::patience(Instant now) const {
    constexpr Duration kShortest = std::chrono::microseconds(10);
    constexpr Duration kLongest = std::chrono::milliseconds(1);
    constexpr Duration kIdle = std::chrono::milliseconds(100);
    // An operation that has taken t is noticed to be done after another t / 8 at most.
    constexpr int kShare = 8;
    const std::lock_guard lock(mutex_);
    if (in_flight_.empty() || failure_) {
        return kIdle;
    }
    return std::clamp((now - in_flight_.front().turn_began) / kShare, kShortest, kLongest);
}

void Lane::note_departure(std::uint32_t member, Instant now) {
    const auto found = std::ranges::find(identity_.members, member);
    if (found == identity_.members.end()) {
        return;
    }
    const std::lock_guard lock(mutex_);
    departed_.emplace(static_cast<std::uint32_t>(found - identity_.members.begin()), now);
}

void Lane::end(const GroupFailure& failure) {
    std::deque<InFlight> failed;
    {
        const std::lock_guard lock(mutex_);
        if (failure_) {
            return;
        }
        failure_ = failure;
        outstanding_ = 0;
        failed.swap(in_flight_);
    }
    for (const InFlight& entry : failed) {
        fail(entry.calls, failure);
    }
}

}  // namespace regroup::nccl
