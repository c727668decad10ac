// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/copier.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "agent/snapshot/low_priority.h"
#include "agent/snapshot/peer_client.h"
#include "rendezvous/files/background.h"

namespace regroup::agent {

namespace {

using snapshot::Holding;
using snapshot::PartId;
using snapshot::Version;

// One connection does not fill a fast network.
std::size_t threads_max() {
    return std::clamp<std::size_t>(std::thread::hardware_concurrency() / 4, 1, 4);
}

constexpr Duration kBackOffMin = std::chrono::milliseconds(100);
constexpr Duration kBackOffMax = std::chrono::seconds(10);

}  // namespace

Copier::Copier(Shelf& shelf, std::function<void(const std::string& sentence)> say,
               Duration give_up_after)
    : shelf_(shelf), say_(std::move(say)), give_up_after_(give_up_after) {}

Copier::~Copier() {
    sockets_.stop();
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    for (std::thread& thread : threads_) {
        thread.join();
    }
}

void Copier::begin_round(bool has_other_nodes) {
    const std::lock_guard lock(mutex_);
    target_ = has_other_nodes ? std::nullopt : std::optional(Target());
    wanted_.clear();
    reset_locked();
    sockets_.interrupt();  // The peer may be lost, and silent.
}

void Copier::reset_locked() {
    copied_.clear();
    has_given_up_ = false;
    back_off_ = {};
    not_before_ = Instant::min();
    failing_since_.reset();
    changed_.notify_all();
}

void Copier::try_again() {
    const std::lock_guard lock(mutex_);
    not_before_ = Instant::min();
    changed_.notify_all();
}

void Copier::set_target(Target target) {
    const std::lock_guard lock(mutex_);
    if (target_ == target) {
        return;
    }
    target_ = std::move(target);
    reset_locked();
    if (target_->endpoint.empty()) {
        go_on_without_copies_locked(false);
        wanted_.clear();
    }
    start_locked();
}

void Copier::saved(const PartId& id, const Version& version, bool replicated) {
    const std::lock_guard lock(mutex_);
    const bool has_no_place = target_ && target_->endpoint.empty();
    if (replicated || has_no_place || has_given_up_) {
        shelf_.note_copied(id, version, !replicated && !has_no_place);
    }
    if (replicated || has_no_place) {
        return;
    }
    Version& wanted = wanted_[id];
    wanted = std::max(wanted, version);
    start_locked();
}

void Copier::go_on_without_copies_locked(bool in_vain) {
    for (const auto& [id, version] : wanted_) {
        shelf_.note_copied(id, version, in_vain);
    }
}

std::map<PartId, Version> Copier::copied() const {
    const std::lock_guard lock(mutex_);
    return copied_;
}

void Copier::start_locked() {
    if (!target_ || target_->endpoint.empty() || stopped_) {
        return;
    }
    changed_.notify_all();
    if (wanted_.size() <= in_progress_.size() + idle_ || threads_.size() >= threads_max()) {
        return;
    }
    const files::AllSignalsBlocked blocked;
    try {
        threads_.emplace_back([this] { run(); });
    } catch (const std::system_error& error) {
        if (threads_.empty()) {
            say_("this node's snapshots have no copy on another node: " +
                 system_failure("a thread", error.code().value()).detail);
            has_given_up_ = true;
            go_on_without_copies_locked(true);
        }
    }
}

/// The part whose version is the oldest: all parts of one version come before the next one.
std::optional<PartId> Copier::next_locked() const {
    std::optional<PartId> oldest;
    for (const auto& [id, version] : wanted_) {
        if (!in_progress_.contains(id) && (!oldest || version < wanted_.at(*oldest))) {
            oldest = id;
        }
    }
    return target_ && !target_->endpoint.empty() ? oldest : std::nullopt;
}

void Copier::run() {
    lower_priority();
    std::unique_lock lock(mutex_);
    while (!stopped_) {
        const auto id = next_locked();
        if (!id) {
            ++idle_;
            changed_.wait(lock);
            --idle_;
            continue;
        }
        if (now() < not_before_) {
            changed_.wait_until(lock, not_before_);
            continue;
        }
        const Version version = wanted_.at(*id);
        const Target target = *target_;
        in_progress_.insert(*id);
        lock.unlock();
        copy(*id, version, target);
        lock.lock();
        in_progress_.erase(*id);
        changed_.notify_all();
    }
}

void Copier::copy(const PartId& id, const Version& version, const Target& target) {
    if (const auto image = shelf_.find(id, version, Holding::Place::room)) {
        const Result<void> put =
            put_copy({target.endpoint, target.trust, sockets_}, id, version, image->bytes,
                     {shelf_.whole(id.name), shelf_.kept(id.name)});
        if (put) {
            succeeded(id, version, target);
            return;
        }
        if (shelf_.has(id, version, Holding::Place::room)) {
            failed(target, put.error().detail);
            return;
        }
    }
    // The worker has overwritten it, since it was allowed to go on without a copy.
    const std::lock_guard lock(mutex_);
    if (const auto found = wanted_.find(id); found != wanted_.end() && found->second == version) {
        wanted_.erase(found);
    }
}

void Copier::succeeded(const PartId& id, const Version& version, const Target& target) {
    const std::lock_guard lock(mutex_);
    if (target_ != target) {
        return;  // Another round: its copies go elsewhere.
    }
    back_off_ = {};
    not_before_ = Instant::min();
    failing_since_.reset();
    shelf_.note_copied(id, version);
    copied_[id] = version;
    if (const auto found = wanted_.find(id); found != wanted_.end() && found->second <= version) {
        wanted_.erase(found);
    }
    if (std::exchange(has_given_up_, false)) {
        say_("the agent at " + target.endpoint + " holds copies of this node's snapshots again");
    }
}

void Copier::failed(const Target& target, const std::string& why) {
    const std::lock_guard lock(mutex_);
    if (target_ != target || stopped_) {
        return;
    }
    const Instant when = now();
    back_off_ = std::clamp(2 * back_off_, kBackOffMin, kBackOffMax);
    not_before_ = after(when, back_off_);
    failing_since_ = failing_since_.value_or(when);
    if (when < after(*failing_since_, give_up_after_)) {
        return;
    }
    go_on_without_copies_locked(true);
    if (!std::exchange(has_given_up_, true)) {
        say_("this node's snapshots have no copy on another node: " + why +
             "; the workers go on without, and this node tries again until the round ends");
    }
}

}  // namespace regroup::agent
