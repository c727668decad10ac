// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/roll_call.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::cpu {
namespace {

constexpr std::size_t kFinishedMax = 16;
/// A rank tells its standing at most this often when it answers. So ranks that call the roll at the
/// same time get one answer together.
constexpr Duration kAnswerInterval = std::chrono::milliseconds(50);

/// Two different collectives with the same number. The number 0 stands for none, and for the
/// exchanges while the group forms.
bool differ(const Signature& one, const Signature& other) {
    return one.number == other.number && one.number != 0 && one != other;
}

}  // namespace

RollCall::RollCall(Mesh& mesh, ControlLine& line,
                   std::function<void(std::uint32_t rank, const Standing& standing)> heard,
                   std::function<void()> wake)
    : mesh_(mesh),
      line_(line),
      heard_(std::move(heard)),
      wake_(std::move(wake)),
      known_(mesh.position().world_size) {
    line_.on_standing(
        [this](std::uint32_t rank, const Standing& standing) { return hear(rank, standing); });
}

void RollCall::enter(const Signature& signature, Instant now) {
    const std::lock_guard lock(mutex_);
    current_ = signature;
    wait_ = kFirstWait;
    next_call_ = after(now, wait_);
    for (std::uint32_t rank = 0; rank < known_.size(); ++rank) {
        const Signature& theirs = known_[rank].standing.latest;
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
    throw GroupFailure{.code = Errc::invalid_argument,
                       .cause = "the ranks do not agree: " + mesh_.peer(peer).name + " calls " +
                                describe(theirs) + ", " + mesh_.peer(mesh_.position().rank).name +
                                " " + ours};
}

/// Notes the standing of another rank and answers it; true if it is news.
bool RollCall::hear(std::uint32_t rank, const Standing& standing) {
    const Instant now = SteadyClock().now();
    {
        const std::lock_guard lock(mutex_);
        Known& known = known_[rank];
        if (standing.version <= known.standing.version) {
            return false;
        }
        known = {.standing = standing, .heard_at = now};
    }
    heard_(rank, standing);
    if (now - told_at_ >= kAnswerInterval) {
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
        if (all_are_fresh() || now >= after(expired_->at, kAnswerLimit)) {
            throw explained();
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
    return expired_ ? after(expired_->at, kAnswerLimit) : Instant::max();
}

/// True if the standing of `rank` is as recent as an answer.
bool RollCall::is_fresh(std::uint32_t rank) const {
    return rank == mesh_.position().rank ||
           (known_[rank].standing.version != 0 &&
            known_[rank].heard_at + kAnswerInterval >= expired_->at);
}

bool RollCall::all_are_fresh() const {
    for (std::uint32_t rank = 0; rank < known_.size(); ++rank) {
        if (!is_fresh(rank)) {
            return false;
        }
    }
    return true;
}

/// Names the ranks that hold up the current collective. A rank that waits inside an earlier
/// collective is only named if no other rank can be the cause: it may wait for a silent one.
GroupFailure RollCall::explained() const {
    std::vector<std::uint32_t> outside;
    std::vector<std::uint32_t> behind;
    std::vector<std::uint32_t> silent;
    const std::uint64_t number = current_ ? current_->number : 0;
    for (std::uint32_t rank = 0; rank < known_.size(); ++rank) {
        const Standing& standing = known_[rank].standing;
        if (rank == mesh_.position().rank) {
            continue;
        }
        if (!is_fresh(rank)) {
            silent.push_back(rank);
        } else if (standing.latest.number < number) {
            (standing.is_inside != 0 ? behind : outside).push_back(rank);
        }
    }
    const std::string within = " within " + format_duration(*expired_->failure.expired_after);
    GroupFailure failure = expired_->failure;
    const std::vector<std::uint32_t>& missing =
        silent.empty() && outside.empty() ? behind : outside;
    if (!missing.empty()) {
        failure.cause =
            names_of(missing) + (missing.size() > 1 ? " have" : " has") + " not joined in" + within;
        if (!silent.empty()) {
            failure.cause += "; " + names_of(silent) + " did not answer";
        }
    } else if (!silent.empty()) {
        failure.cause =
            names_of(silent) + " did not answer, and the collective is not complete" + within;
    }
    return failure;
}

std::string RollCall::names_of(const std::vector<std::uint32_t>& ranks) const {
    constexpr std::size_t kNamedMax = 8;
    std::string text;
    for (std::size_t i = 0; i < std::min(ranks.size(), kNamedMax); ++i) {
        text += (text.empty() ? "" : ", ") + mesh_.peer(ranks[i]).name;
    }
    if (ranks.size() > kNamedMax) {
        text += " and " + std::to_string(ranks.size() - kNamedMax) + " more";
    }
    return text;
}

}  // namespace regroup::cpu
