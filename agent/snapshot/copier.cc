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

constexpr Duration kBackOffMin = std::chrono::milliseconds(100);
constexpr Duration kBackOffMax = std::chrono::seconds(10);
constexpr int kOvertakenMax = 8;
// A new round begins on all nodes at about the same time; until then each refuses the other.
constexpr Duration kComplainAfter = std::chrono::seconds(10);

}  // namespace

Copier::Copier(Shelf& shelf, std::function<void(const std::string& sentence)> say)
    : shelf_(shelf), say_(std::move(say)) {}

Copier::~Copier() {
    sockets_.stop();
    {
        const std::lock_guard lock(mutex_);
        stopped_ = true;
    }
    changed_.notify_all();
    if (thread_.joinable()) {
        thread_.join();
    }
}

void Copier::set_target(Target target) {
    std::map<PartId, Version> latest;
    for (const HeldPart& part : shelf_.parts()) {
        if (part.place == Holding::Place::room && !part.replicated) {
            Version& version = latest[part.id];
            version = std::max(version, part.version);
        }
    }
    const std::lock_guard lock(mutex_);
    if (target == target_) {
        return;
    }
    target_ = std::move(target);
    copied_.clear();
    wanted_ = std::move(latest);
    start_locked();
}

void Copier::saved(const PartId& id, const Version& version) {
    const std::lock_guard lock(mutex_);
    Version& wanted = wanted_[id];
    wanted = std::max(wanted, version);
    start_locked();
}

std::map<PartId, Version> Copier::copied() const {
    const std::lock_guard lock(mutex_);
    return copied_;
}

void Copier::start_locked() {
    if (target_.endpoint.empty() || wanted_.empty() || stopped_) {
        return;
    }
    if (thread_.joinable()) {
        changed_.notify_all();
        return;
    }
    const files::AllSignalsBlocked blocked;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error& error) {
        say_("snapshots are not copied to another node: " +
             system_failure("a thread", error.code().value()).detail);
    }
}

/// The part whose version is the oldest: all parts of one version come before the next one.
std::optional<PartId> Copier::next_locked() const {
    const auto oldest =
        std::min_element(wanted_.begin(), wanted_.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    return target_.endpoint.empty() || oldest == wanted_.end() ? std::nullopt
                                                               : std::optional(oldest->first);
}

void Copier::run() {
    lower_priority();
    std::unique_lock lock(mutex_);
    while (!stopped_) {
        const auto id = next_locked();
        if (!id) {
            changed_.wait(lock);
            continue;
        }
        const Version version = wanted_.at(*id);
        const Target target = target_;
        lock.unlock();
        copy(*id, version, target);
        lock.lock();
        if (back_off_ > Duration::zero() && !stopped_) {
            changed_.wait_for(lock, back_off_, [&] { return stopped_ || !(target == target_); });
        }
    }
}

void Copier::copy(const PartId& id, const Version& version, const Target& target) {
    const auto image = shelf_.find(id, version, Holding::Place::room);
    if (image) {
        const Result<void> put = put_copy({target.endpoint, target.trust, sockets_}, id, version,
                                          image->bytes, shelf_.whole(id.name));
        if (put) {
            succeeded(id, version, target);
            return;
        }
        // The worker may have overwritten the slot meanwhile: then the copy is wrong, and late.
        if (shelf_.has(id, version, Holding::Place::room)) {
            failed(put.error().detail);
            return;
        }
    }
    if (++overtaken_ == kOvertakenMax) {
        say_("this node saves steps faster than the agent at " + target.endpoint +
             " can hold copies of them, so that the last copy there is old; save less often");
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = wanted_.find(id); found != wanted_.end() && found->second == version) {
        wanted_.erase(found);
    }
}

void Copier::succeeded(const PartId& id, const Version& version, const Target& target) {
    back_off_ = {};
    failing_since_.reset();
    overtaken_ = 0;
    if (std::exchange(has_complained_, false)) {
        say_("the agent at " + target.endpoint + " holds copies of this node's snapshots again");
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = wanted_.find(id); found != wanted_.end() && found->second <= version) {
        wanted_.erase(found);
    }
    if (target == target_) {
        copied_[id] = version;
    }
}

void Copier::failed(const std::string& why) {
    back_off_ = std::clamp(2 * back_off_, kBackOffMin, kBackOffMax);
    const Instant when = now();
    failing_since_ = failing_since_.value_or(when);
    if (sockets_.is_stopped() || has_complained_ || when < after(*failing_since_, kComplainAfter)) {
        return;
    }
    has_complained_ = true;
    say_("this node's snapshots have no copy on another node: " + why +
         "; this node tries again until the round ends");
}

}  // namespace regroup::agent
