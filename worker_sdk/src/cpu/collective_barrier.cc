// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/collective_barrier.h"

#include <utility>

#include "worker_sdk/src/base/text.h"

namespace regroup::cpu {

CollectiveBarrier::CollectiveBarrier(std::shared_ptr<const NodeMemory> memory, std::uint32_t rank,
                                     std::vector<std::string> names, Listener listener)
    : memory_(std::move(memory)),
      rank_(rank),
      names_(std::move(names)),
      listener_(std::move(listener)),
      barrier_(memory_->board(0).barrier, static_cast<std::uint32_t>(names_.size()),
               memory_->crowded(), [this] { return is_hopeless(); }) {}

void CollectiveBarrier::begin(const Signature& called, Instant now, Duration limit) {
    if (called.number != called_.number) {
        previous_ = std::exchange(called_, called);
        is_entering_ = true;
    }
    limit_ = limit;
    deadline_ = after(now, limit_);
    telling_at_ = after(now, kLongWait);
}

NodeEntry& CollectiveBarrier::next_entry() {
    ++entered_;
    return memory_->board(rank_).entries[half()] = {.called = called_};
}

void CollectiveBarrier::enter() {
    pass();
    is_entering_ = false;
    check_called();
}

void CollectiveBarrier::pass() {
    memory_->board(rank_).arrivals.store(barrier_.arrivals() + 1);
    switch (barrier_.pass(deadline_)) {
        case NodeBarrier::Outcome::passed:
            return;
        case NodeBarrier::Outcome::stopped:
            throw GroupFailure{.code = Errc::fenced, .cause = "the group has ended"};
        case NodeBarrier::Outcome::hopeless:
            throw GroupFailure{.code = Errc::disconnected,
                               .cause = names_[*missing_for_good()] + " has left the group"};
        case NodeBarrier::Outcome::expired:
            throw GroupFailure{
                .code = Errc::deadline_exceeded,
                .cause = missing_ranks() + " not joined in within " + format_duration(limit_)};
    }
}

/// Called while this rank waits at a barrier.
bool CollectiveBarrier::is_hopeless() {
    if (SteadyClock().now() >= telling_at_) {
        telling_at_ = Instant::max();
        tell_standings();
    }
    return missing_for_good().has_value();
}

void CollectiveBarrier::tell_standings() const {
    const Standing inside{.called = called_.number, .latest = called_, .is_inside = 1};
    const Standing before{.called = previous_.number, .latest = previous_};
    for (std::uint32_t rank = 0; rank < names_.size(); ++rank) {
        if (rank != rank_) {
            listener_(rank, is_entering_ && missing(rank) ? before : inside);
        }
    }
}

bool CollectiveBarrier::missing(std::uint32_t rank) const noexcept {
    const std::uint32_t arrivals = memory_->board(rank).arrivals.load();
    return static_cast<std::int32_t>(arrivals - barrier_.arrivals()) < 0;
}

/// A rank that left before it arrived at the barrier at which this rank waits.
std::optional<std::uint32_t> CollectiveBarrier::missing_for_good() const noexcept {
    for (std::uint32_t rank = 0; rank < names_.size(); ++rank) {
        if (memory_->board(rank).left.load() != 0 && missing(rank)) {
            return rank;
        }
    }
    return std::nullopt;
}

void CollectiveBarrier::stop(bool orderly) noexcept {
    NodeMemory::Board& own = memory_->board(rank_);
    (orderly ? own.left : own.failed).store(1);
    barrier_.stop();
}

/// Names the ranks that have not arrived: "rank 1 (10.0.0.4:4711) has".
std::string CollectiveBarrier::missing_ranks() const {
    std::vector<std::string> names;
    for (std::uint32_t rank = 0; rank < names_.size(); ++rank) {
        if (missing(rank)) {
            names.push_back(names_[rank]);
        }
    }
    if (names.empty()) {
        names.emplace_back("a rank");  // It has arrived meanwhile.
    }
    return listed(names, 8) + (names.size() > 1 ? " have" : " has");
}

void CollectiveBarrier::check_called() const {
    for (std::uint32_t rank = 0; rank < names_.size(); ++rank) {
        const Signature theirs = memory_->board(rank).entries[half()].called;
        if (theirs != called_) {
            throw disagreement(names_[rank], theirs, names_[rank_], "calls " + describe(called_));
        }
    }
}

void CollectiveBarrier::check_sources() const {
    for (std::uint32_t rank = 0; rank < names_.size(); ++rank) {
        if (memory_->board(rank).failed.load() != 0) {
            throw GroupFailure{.code = Errc::disconnected,
                               .cause = names_[rank] + " has given the group up",
                               .follows = true};
        }
    }
}

}  // namespace regroup::cpu
