// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/in_flight.h"

#include <regroup/error.h>

#include <algorithm>
#include <utility>

#include "worker_sdk/src/base/flight_recorder.h"

namespace regroup::nccl {
namespace {

constexpr std::size_t kOutstandingMax = 65536;
/// The collectives that can be compared with those of other ranks.
constexpr std::size_t kCalledMax = 1024;
constexpr std::size_t kFreeEventsMax = 256;
/// How long an operation may take to finish after a rank that it needs has left.
constexpr Duration kLastBytes = std::chrono::seconds(5);

}  // namespace

InFlight::InFlight(const Backend& backend, const GroupIdentity& identity,
                   std::shared_ptr<net::Wakeup> watchdog)
    : backend_(backend),
      identity_(identity),
      watchdog_(std::move(watchdog)),
      waiters_(std::make_shared<Waiters>(watchdog_)) {}

std::optional<GroupFailure> InFlight::failure() const {
    const std::lock_guard lock(mutex_);
    return failure_ ? failure_ : posted_;
}

void InFlight::post(GroupFailure failure) noexcept {
    {
        const std::lock_guard lock(mutex_);
        if (failure_ || posted_) {
            return;
        }
        posted_ = std::move(failure);
    }
    watchdog_->ring();
}

bool InFlight::is_idle() const {
    const std::lock_guard lock(mutex_);
    return entries_.empty();
}

bool InFlight::may_touch_memory() const {
    const std::lock_guard lock(mutex_);
    return failure_ || posted_ || issuing_ || !entries_.empty();
}

std::shared_ptr<Work::State> InFlight::make_work() const {
    return std::make_shared<Work::State>(waiters_);
}

void InFlight::succeed(const Call& call, Instant now) const {
    flight_recorder().completed(call.operation.record, now);
    identity_.report->completed(call.operation.signature.kind, call.operation.report, now);
    if (identity_.round) {
        identity_.round->note_done();
    }
    call.work->succeed();
}

void InFlight::fail(std::span<const Call> calls, const GroupFailure& failure) const {
    for (const Call& call : calls) {
        call.work->fail(failure.code,
                        describe(failure, call.operation.signature, identity_.place()));
    }
}

InFlight::Issuing::Issuing(InFlight& in_flight, std::vector<Operation> operations)
    : in_flight_(in_flight) {
    const std::lock_guard lock(in_flight_.mutex_);
    std::deque<Signature>& called = in_flight_.called_;
    for (const Operation& operation : operations) {
        if (!is_message(operation)) {
            called.push_back(operation.signature);
        }
    }
    while (called.size() > kCalledMax) {
        called.pop_front();
    }
    in_flight_.issuing_ = Begun{.operations = std::move(operations), .since = SteadyClock().now()};
}

InFlight::Issuing::~Issuing() {
    const std::lock_guard lock(in_flight_.mutex_);
    in_flight_.issuing_.reset();
}

bool InFlight::admit(std::span<const Call> calls) const {
    const std::lock_guard lock(mutex_);
    if (failure_ || posted_) {
        fail(calls, failure_ ? *failure_ : *posted_);
        return false;
    }
    if (outstanding_ + calls.size() > kOutstandingMax) {
        throw Error(Errc::overloaded, describe(calls.front().operation.signature) +
                                          identity_.place() + ": " + std::to_string(outstanding_) +
                                          " operations are in flight; wait for some");
    }
    return true;
}

cuda::Event InFlight::take_event() {
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

void InFlight::track(std::vector<Call> calls, void* stream) {
    try {
        cuda::Event event = take_event();
        backend_.runtime.record(event.get(), stream);
        enter(std::move(calls), std::move(event));
    } catch (const Error& error) {
        GroupFailure failure{error.code(), error.what(),
                             describe(calls.front().operation.signature)};
        track_failed(std::move(calls), std::move(failure));
    }
}

void InFlight::track_failed(std::vector<Call> calls, GroupFailure failure) {
    enter(std::move(calls), std::nullopt);
    post(std::move(failure));
}

void InFlight::enter(std::vector<Call> calls, std::optional<cuda::Event> event) {
    bool watchdog_rests = false;
    {
        const std::lock_guard lock(mutex_);
        if (failure_) {
            fail(calls, *failure_);
            return;
        }
        watchdog_rests = entries_.empty();
        outstanding_ += calls.size();
        entries_.push_back({.calls = std::move(calls),
                            .event = std::move(event),
                            .turn_began = SteadyClock().now()});
    }
    if (watchdog_rests) {
        watchdog_->ring();
    }
}

std::optional<GroupFailure> InFlight::await_end() const {
    // Much longer than the watchdog waits for a rank's name (kNameMax).
    constexpr Duration kLongest = std::chrono::seconds(2);
    std::unique_lock lock(mutex_);
    ended_.wait_for(lock, kLongest, [this] { return failure_.has_value(); });
    return failure_;
}

void* InFlight::front_event() const {
    const std::lock_guard lock(mutex_);
    return !entries_.empty() && entries_.front().event ? entries_.front().event->get() : nullptr;
}

std::vector<Call> InFlight::complete_front(Instant now) {
    const std::lock_guard lock(mutex_);
    Entry& front = entries_.front();
    std::vector<Call> calls = std::move(front.calls);
    outstanding_ -= calls.size();
    if (free_events_.size() < kFreeEventsMax) {
        free_events_.push_back(std::move(*front.event));
    }
    entries_.pop_front();
    if (!entries_.empty()) {
        entries_.front().turn_began = std::max(entries_.front().turn_began, now);
    }
    return calls;
}

std::optional<GroupFailure> InFlight::check(const CommReport& report, Instant now) {
    {
        const std::lock_guard lock(mutex_);
        if (failure_) {
            return std::nullopt;
        }
        if (posted_) {
            // While a later operation is issued, NCCL reports errors of the oldest operation in
            // flight.
            if (!posted_->operation.empty() && posted_->code != Errc::deadline_exceeded) {
                posted_->operation = oldest();
            }
            return posted_;
        }
        if (report.state == CommState::failed) {
            return failure_of_nccl(report, oldest());
        }
    }
    try {
        // Query CUDA without the lock, which the caller's thread needs. No other thread removes the
        // front.
        for (void* event = front_event(); event != nullptr && backend_.runtime.has_passed(event);
             event = front_event()) {
            for (const Call& call : complete_front(now)) {
                succeed(call, now);
            }
        }
    } catch (const Error& error) {
        const std::lock_guard lock(mutex_);
        return GroupFailure{error.code(), error.what(), oldest()};
    }
    const std::lock_guard lock(mutex_);
    return overdue(now);
}

/// The oldest operation that is not complete; empty if nothing is in flight.
std::string InFlight::oldest() const {
    if (!entries_.empty()) {
        return describe(entries_.front().calls.front().operation.signature);
    }
    return issuing_ ? describe(issuing_->operations.front().signature) : "";
}

/// The failure if a member has left that the oldest operation needs. The operation being issued
/// counts too: the first operation with a peer waits until the peer connects.
std::optional<GroupFailure> InFlight::deserted(Instant now) const {
    for (const auto& [rank, left_at] : departed_) {
        const auto is_needed = [who = rank](const Operation& operation) {
            return !is_message(operation) || operation.signature.peer == who;
        };
        const bool needed =
            entries_.empty()
                ? issuing_ && std::ranges::any_of(issuing_->operations, is_needed)
                : std::ranges::any_of(entries_.front().calls, is_needed, &Call::operation);
        if (needed) {
            const Instant began = entries_.empty() ? issuing_->since : entries_.front().turn_began;
            if (now - std::max(left_at, began) >= kLastBytes) {
                return GroupFailure{Errc::disconnected,
                                    "rank " + std::to_string(rank) + " has left the group",
                                    oldest()};
            }
        }
    }
    return std::nullopt;
}

std::optional<GroupFailure> InFlight::overdue(Instant now) const {
    if (!entries_.empty()) {
        const Operation& oldest = entries_.front().calls.front().operation;
        if (now - entries_.front().turn_began >= identity_.timeout_of(oldest)) {
            return identity_.expired(oldest, "not complete");
        }
    } else if (backend_.blocking && issuing_) {
        // A call of a blocking communicator waits in the caller's thread, which keeps no deadline.
        const Operation& first = issuing_->operations.front();
        if (now - issuing_->since >= identity_.timeout_of(first)) {
            return identity_.expired(first, "NCCL has not started it");
        }
    }
    return deserted(now);
}

Duration InFlight::patience(Instant now) const {
    constexpr Duration kShortest = std::chrono::microseconds(10);
    constexpr Duration kLongest = std::chrono::milliseconds(1);
    constexpr Duration kIdle = std::chrono::milliseconds(100);
    // The watchdog notices the end of an operation that took t after another t / 8 at most.
    constexpr int kShare = 8;
    const std::lock_guard lock(mutex_);
    if (entries_.empty() || failure_) {
        return kIdle;
    }
    if (waiters_->may_rest()) {
        return kLongest;
    }
    return std::clamp((now - entries_.front().turn_began) / kShare, kShortest, kLongest);
}

void InFlight::note_departure(std::uint32_t member, Instant now) {
    if (const auto rank = identity_.rank_of(member)) {
        const std::lock_guard lock(mutex_);
        departed_.emplace(*rank, now);
    }
}

void InFlight::end(const GroupFailure& failure) {
    std::deque<Entry> failed;
    {
        const std::lock_guard lock(mutex_);
        if (failure_) {
            return;
        }
        failure_ = failure;
        outstanding_ = 0;
        failed.swap(entries_);
    }
    ended_.notify_all();
    if (const auto fault = peer_fault(failure); fault && identity_.round) {
        identity_.round->note_peer_fault(*fault);
    }
    for (const Entry& entry : failed) {
        fail(entry.calls, failure);
    }
    if (failure.code != Errc::fenced) {
        write_flight_record();
    }
}

Standing InFlight::standing() const {
    const std::lock_guard lock(mutex_);
    Standing standing;
    if (!called_.empty()) {
        standing.latest = called_.back();
        standing.called = standing.latest.number;
    }
    const auto enter = [&](const Operation& operation) {
        if (standing.is_inside == 0 && !is_message(operation)) {
            standing.latest = operation.signature;
            standing.is_inside = 1;
        }
    };
    for (const Entry& each : entries_) {
        std::ranges::for_each(each.calls, enter, &Call::operation);
    }
    if (issuing_) {
        std::ranges::for_each(issuing_->operations, enter);
    }
    return standing;
}

std::optional<GroupFailure> InFlight::compare(std::uint32_t member,
                                              const Standing& standing) const {
    const auto rank = identity_.rank_of(member);
    if (!rank) {
        return std::nullopt;
    }
    flight_recorder().note_standing(identity_.record, *rank, describe(standing));
    const std::lock_guard lock(mutex_);
    for (const Signature& called : called_) {
        if (differ(standing.latest, called)) {
            return disagreement(identity_.name_of(member), standing.latest,
                                identity_.name_of(identity_.members[identity_.rank]),
                                "calls " + describe(called));
        }
    }
    return std::nullopt;
}

}  // namespace regroup::nccl
