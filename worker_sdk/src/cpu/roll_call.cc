// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/roll_call.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {
namespace {

constexpr std::size_t kFinishedMax = 16;

std::vector<std::uint32_t> others_of(const Mesh& mesh) {
    std::vector<std::uint32_t> others;
    for (std::uint32_t rank = 0; rank < mesh.position().world_size; ++rank) {
        if (rank != mesh.position().rank) {
            others.push_back(rank);
        }
    }
    return others;
}

}  // namespace

RollCall::RollCall(Mesh& mesh, ControlLine& line,
                   std::function<void(std::uint32_t rank, const Standing& standing)> heard,
                   std::function<void()> wake)
    : mesh_(mesh),
      line_(line),
      heard_(std::move(heard)),
      wake_(std::move(wake)),
      others_(others_of(mesh)) {
    line_.on_standing(
        [this](std::uint32_t rank, const Standing& standing) { return hear(rank, standing); });
}

void RollCall::enter(const Signature& signature, Instant now) {
    const std::lock_guard lock(mutex_);
    current_ = signature;
    wait_ = kFirstWait;
    next_call_ = after(now, wait_);
    for (const std::uint32_t rank : others_) {
        const Signature& theirs = standings_.latest_of(rank);
        if (differ(theirs, signature)) {
            disagree(rank, theirs, "calls " + describe(signature));
        }
    }
}

void RollCall::leave() {
    const std::lock_guard lock(mutex_);
    ENSURE(current_);
    finished_.push_back(*current_);
    if (finished_.size() > kFinishedMax) {
        finished_.pop_front();
    }
    current_.reset();
    next_call_ = Instant::max();
}

Instant RollCall::next_call() const {
    const std::lock_guard lock(mutex_);
    return next_call_;
}

void RollCall::call(Instant now) {
    {
        const std::lock_guard lock(mutex_);
        wait_ = std::min(2 * wait_, kLongestWait);
        next_call_ = after(now, wait_);
        call_is_due_ = true;
    }
    wake_();
}

void RollCall::check(std::uint32_t peer, const Signature& theirs) const {
    const std::lock_guard lock(mutex_);
    const bool is_current = current_ && theirs.number == current_->number;
    const std::uint64_t finished_number = finished_.empty() ? 0 : finished_.back().number;
    if (is_current ? theirs == *current_ : finished_.empty() || theirs.number > finished_number) {
        return;  // The same collective, or the peer is ahead.
    }
    std::string ours = "has ended that one";
    if (is_current) {
        ours = "calls " + describe(*current_);
    }
    for (const Signature& finished : finished_) {
        if (finished.number == theirs.number) {
            ours = "has called " + describe(finished);
        }
    }
    disagree(peer, theirs, ours);
}

void RollCall::disagree(std::uint32_t peer, const Signature& theirs,
                        const std::string& ours) const {
    throw disagreement(mesh_.peer(peer).name, theirs, mesh_.peer(mesh_.position().rank).name, ours);
}

/// Notes the standing of another rank and answers it; true if it is news.
bool RollCall::hear(std::uint32_t rank, const Standing& standing) {
    const Instant now = SteadyClock().now();
    {
        const std::lock_guard lock(mutex_);
        if (!standings_.note(rank, standing, now)) {
            return false;
        }
    }
    heard_(rank, standing);
    if (now - told_at_ >= Standings::kAnswerInterval) {
        tell(now);
    }
    const std::lock_guard lock(mutex_);
    if (current_ && differ(standing.latest, *current_)) {
        disagree(rank, standing.latest, "calls " + describe(*current_));
    }
    for (const Signature& finished : finished_) {
        if (differ(standing.latest, finished)) {
            disagree(rank, standing.latest, "has called " + describe(finished));
        }
    }
    return true;
}

void RollCall::tell(Instant now) {
    Standing standing{.version = ++version_};
    {
        const std::lock_guard lock(mutex_);
        standing.is_inside = current_ ? 1 : 0;
        if (current_) {
            standing.latest = *current_;
        } else if (!finished_.empty()) {
            standing.latest = finished_.back();
        }
        standing.called = standing.latest.number;
    }
    told_at_ = now;
    line_.tell(standing);
}

void RollCall::expire(const GroupFailure& failure) {
    if (!expired_) {
        const Instant now = SteadyClock().now();
        expired_ = {.failure = failure, .at = now};
        tell(now);
    }
}

void RollCall::progress() {
    const Instant now = SteadyClock().now();
    if (expired_) {
        const std::lock_guard lock(mutex_);
        if (standings_.have_answered(others_, expired_->at) || now >= next_deadline()) {
            throw standings_.explain(expired_->failure, expired_->at, others_,
                                     [this](std::uint32_t rank) { return mesh_.peer(rank).name; });
        }
    }
    const bool is_due = [this] {
        const std::lock_guard lock(mutex_);
        return std::exchange(call_is_due_, false);
    }();
    if (is_due) {
        tell(now);
    }
}

Instant RollCall::next_deadline() const {
    return expired_ ? after(expired_->at, Standings::kAnswerLimit) : Instant::max();
}

}  // namespace regroup::cpu
