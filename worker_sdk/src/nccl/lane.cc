// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/lane.h"

#include <regroup/error.h>

#include <algorithm>
#include <utility>

#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/nccl/agreement.h"

namespace regroup::nccl {
namespace {

constexpr std::size_t kFreeEventsMax = 256;
/// Of the barrier word, which the table follows.
constexpr std::size_t kWordBytes = 256;
/// How long an operation may take to finish after a rank that it needs has left.
constexpr Duration kLastBytes = std::chrono::seconds(5);

std::string place_of(const GroupIdentity& identity) {
    return " on " + to_string(identity.device) +
           (identity.name == ProcessGroupOptions().name ? ""
                                                        : " in group \"" + identity.name + "\"");
}

}  // namespace

Errc errc_of(ncclResult_t result) noexcept {
    switch (result) {
        case ncclRemoteError:
            return Errc::disconnected;
        case ncclInvalidArgument:
        case ncclInvalidUsage:
            return Errc::invalid_argument;
        default:
            return Errc::system;
    }
}

GroupFailure failure_of_nccl(const CommReport& report, std::string operation) {
    return {.code = errc_of(report.result),
            .cause = "NCCL: " + report.text,
            .operation = std::move(operation),
            .may_be_peer = report.result == ncclRemoteError || report.result == ncclSystemError};
}

std::string GroupIdentity::name_of(std::uint32_t member) const {
    const auto index = std::ranges::find(members, member) - members.begin();
    const std::string text = "rank " + std::to_string(index);
    return static_cast<std::uint32_t>(index) == member
               ? text
               : text + " (world rank " + std::to_string(member) + ")";
}

std::shared_ptr<Lane> Lane::make(const Backend& backend, GroupIdentity identity,
                                 std::shared_ptr<net::Wakeup> watchdog,
                                 const std::shared_ptr<Reaper>& reaper) {
    return {new Lane(backend, std::move(identity), std::move(watchdog), reaper),
            [reaper](Lane* lane) { reaper->take([lane] { delete lane; }); }};
}

Lane::Lane(const Backend& backend, GroupIdentity identity, std::shared_ptr<net::Wakeup> watchdog,
           std::shared_ptr<Reaper> reaper)
    : backend_(backend),
      identity_(std::move(identity)),
      place_(place_of(identity_)),
      record_(flight_recorder().add({.name = identity_.name,
                                     .backend = "nccl",
                                     .ranks = identity_.members,
                                     .rank = identity_.rank})),
      watchdog_(std::move(watchdog)),
      waiters_(std::make_shared<Waiters>(watchdog_)),
      reaper_(std::move(reaper)),
      communicator_(std::make_shared<Communicator>(backend.api, backend.blocking)) {
    const std::size_t bytes = kWordBytes + identity_.members.size() * sizeof(Proposal);
    const cuda::DeviceScope scope(backend_.runtime, identity_.device.index);
    default_stream_passed_.emplace(backend_.runtime);
    barrier_word_ = backend_.runtime.allocate(bytes);
    if (barrier_word_ == nullptr) {
        throw Error(Errc::system, to_string(identity_.device) + " has not even " +
                                      std::to_string(bytes) + " bytes of memory left");
    }
    backend_.runtime.clear(barrier_word_, bytes);
    own_stream_ = backend_.runtime.create_stream();
}

Lane::~Lane() {
    if (own_stream_ != nullptr) {
        backend_.runtime.destroy_stream(own_stream_);
    }
    backend_.runtime.free(barrier_word_);
    free_blocks(backend_, kept_);
}

void* Lane::table() const noexcept {
    return static_cast<std::byte*>(barrier_word_) + kWordBytes;
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
    const std::string text = describe(operation.signature);
    const bool own = failure.operation.empty() || failure.operation == text;
    return text + place_ + ": " +
           (own ? "" : "the group has ended with " + failure.operation + ": ") + failure.cause;
}

void Lane::fail(std::span<const Call> calls, const GroupFailure& failure) const {
    for (const Call& call : calls) {
        call.work->fail(failure.code, explain(failure, call.operation));
    }
}

void* Lane::front_event() const {
    const std::lock_guard lock(mutex_);
    return !in_flight_.empty() && in_flight_.front().event ? in_flight_.front().event->get()
                                                           : nullptr;
}

std::vector<Call> Lane::complete_front(Instant now) {
    const std::lock_guard lock(mutex_);
    InFlight& front = in_flight_.front();
    std::vector<Call> calls = std::move(front.calls);
    outstanding_ -= calls.size();
    if (free_events_.size() < kFreeEventsMax) {
        free_events_.push_back(std::move(*front.event));
    }
    in_flight_.pop_front();
    if (!in_flight_.empty()) {
        in_flight_.front().turn_began = std::max(in_flight_.front().turn_began, now);
    }
    return calls;
}

std::optional<GroupFailure> Lane::check(Instant now) {
    // Ask NCCL first: when NCCL gives up, its kernels also end, without a result.
    const CommReport report = communicator_->glance();
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
                note_done(call, now);
                call.work->succeed();
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
std::string Lane::oldest() const {
    if (!in_flight_.empty()) {
        return describe(in_flight_.front().calls.front().operation.signature);
    }
    return issuing_ ? describe(issuing_->operations.front().signature) : "";
}

/// The failure if a member has left that the oldest operation needs. The operation being issued
/// counts too: the first operation with a peer waits until the peer connects.
std::optional<GroupFailure> Lane::deserted(Instant now) const {
    for (const auto& [rank, left_at] : departed_) {
        const auto is_needed = [who = rank](const Operation& operation) {
            return !is_message(operation) || operation.signature.peer == who;
        };
        const bool needed =
            in_flight_.empty()
                ? issuing_ && std::ranges::any_of(issuing_->operations, is_needed)
                : std::ranges::any_of(in_flight_.front().calls, is_needed, &Call::operation);
        if (needed) {
            const Instant began =
                in_flight_.empty() ? issuing_->since : in_flight_.front().turn_began;
            if (now - std::max(left_at, began) >= kLastBytes) {
                return GroupFailure{Errc::disconnected,
                                    "rank " + std::to_string(rank) + " has left the group",
                                    oldest()};
            }
        }
    }
    return std::nullopt;
}

std::optional<GroupFailure> Lane::overdue(Instant now) const {
    if (!in_flight_.empty()) {
        const Operation& oldest = in_flight_.front().calls.front().operation;
        if (now - in_flight_.front().turn_began >= timeout_of(oldest)) {
            return expired(oldest, "not complete");
        }
    }
    // A call of a blocking communicator waits in the caller's thread, which keeps no deadline.
    if (backend_.blocking && in_flight_.empty() && issuing_) {
        const Operation& first = issuing_->operations.front();
        if (now - issuing_->since >= timeout_of(first)) {
            return expired(first, "NCCL has not started it");
        }
    }
    return deserted(now);
}

Duration Lane::patience(Instant now) const {
    constexpr Duration kShortest = std::chrono::microseconds(10);
    constexpr Duration kLongest = std::chrono::milliseconds(1);
    constexpr Duration kIdle = std::chrono::milliseconds(100);
    // The watchdog notices the end of an operation that took t after another t / 8 at most.
    constexpr int kShare = 8;
    const std::lock_guard lock(mutex_);
    if (in_flight_.empty() || failure_) {
        return kIdle;
    }
    if (waiters_->may_rest()) {
        return kLongest;
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
    if (const auto fault = peer_fault(failure); fault && identity_.round) {
        identity_.round->note_peer_fault(*fault);
    }
    for (const InFlight& entry : failed) {
        fail(entry.calls, failure);
    }
    if (failure.code != Errc::fenced) {
        write_flight_record();
    }
}

Standing Lane::standing() const {
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
    for (const InFlight& each : in_flight_) {
        std::ranges::for_each(each.calls, enter, &Call::operation);
    }
    if (issuing_) {
        std::ranges::for_each(issuing_->operations, enter);
    }
    return standing;
}

std::optional<GroupFailure> Lane::compare(std::uint32_t member, const Standing& standing) const {
    const auto found = std::ranges::find(identity_.members, member);
    if (found == identity_.members.end()) {
        return std::nullopt;
    }
    flight_recorder().note_standing(
        record_, static_cast<std::uint32_t>(found - identity_.members.begin()), describe(standing));
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
