// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/watchdog.h"

#include <regroup/error.h>

#include <algorithm>
#include <exception>
#include <sys/prctl.h>
#include <utility>

#include "worker_sdk/src/base/helper_thread.h"

namespace regroup::nccl {
namespace {

/// NCCL reports a failure without a rank. The ring names the rank, a moment earlier or later.
constexpr Duration kNameMax = std::chrono::milliseconds(200);

}  // namespace

Watchdog::Watchdog(const Backend& backend, Device device, std::uint32_t rank,
                   std::unique_ptr<ControlRing> ring, std::shared_ptr<net::Wakeup> wakeup,
                   std::shared_ptr<Reaper> reaper)
    : backend_(backend),
      device_(device),
      rank_(rank),
      ring_(std::move(ring)),
      wakeup_(std::move(wakeup)),
      reaper_(std::move(reaper)) {
    if (ring_) {
        roll_call_.emplace(*ring_, rank_);
    }
    thread_ = start_helper_thread("regroup-nccl", [this] { run(); });
}

Watchdog::~Watchdog() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    wakeup_->ring();
    thread_.join();
    reaper_->await_all();
}

bool Watchdog::is_stopping() {
    const std::lock_guard lock(mutex_);
    return stopping_;
}

std::vector<std::shared_ptr<Lane>> Watchdog::lanes() {
    const std::lock_guard lock(mutex_);
    return lanes_;
}

void Watchdog::add(std::shared_ptr<Lane> lane) {
    const std::uint32_t scope = lane->identity().scope;
    std::optional<GroupFailure> failure;
    {
        const std::lock_guard lock(mutex_);
        for (const auto& [rank, when] : departed_) {
            lane->in_flight().note_departure(rank, when);
        }
        lanes_.push_back(std::move(lane));
        for (const std::uint32_t ended : {0U, scope}) {
            if (const auto found = ended_.find(ended); found != ended_.end()) {
                failure = found->second;
            }
        }
    }
    if (failure) {
        finish(scope, *failure);
    }
    wakeup_->ring();
}

void Watchdog::release(const std::shared_ptr<Lane>& lane) noexcept {
    const bool in_order = lane->in_flight().is_idle() && !lane->in_flight().failure();
    if (!in_order) {
        lane->in_flight().post(
            {Errc::fenced, "aborted: the group was destroyed with operations in flight", {}});
        return;  // The thread ends the lane and then removes it.
    }
    {
        const std::lock_guard lock(mutex_);
        std::erase(lanes_, lane);
    }
    reaper_->take([lane] { lane->leave(); });
    reaper_->await_all();
}

void Watchdog::run() noexcept {
    // Without this, a poll of ten microseconds takes sixty.
    (void)::prctl(PR_SET_TIMERSLACK, 1000UL);
    GroupFailure failure;
    try {
        backend_.runtime.set_device(device_.index);
        backend_.runtime.stay_out_of_captures();
        while (!is_stopping()) {
            turn();
        }
        failure = {Errc::fenced, "aborted: the group was destroyed", {}};
        // End sub-groups that were aborted in their destructors.
        turn();
    } catch (const Error& error) {
        failure = {error.code(), error.what(), {}};
    } catch (const std::exception& error) {
        failure = {Errc::system, error.what(), {}};  // Out of memory.
    }
    if (held_) {
        end_all(held_->failure);
    } else if (!is_stopping() || !lanes().empty()) {
        end_all(failure);
    } else if (ring_) {
        ring_->announce({.kind = Notice::Kind::left, .origin = rank_});
    }
}

void Watchdog::turn() {
    const Instant now = SteadyClock().now();
    if (ring_) {
        hear(now);
    }
    for (const std::shared_ptr<Lane>& lane : lanes()) {
        if (auto failure = lane->check(now)) {
            take_failure(lane, std::move(*failure), now);
        }
    }
    if (const auto failure = explained(now)) {
        held_.reset();
        end_all(*failure);
    }
    if (!is_stopping()) {
        wait(lanes(), now);
    }
}

void Watchdog::wait(const std::vector<std::shared_ptr<Lane>>& watched, Instant now) {
    Duration patience = std::chrono::milliseconds(held_ ? 1 : 100);
    for (const std::shared_ptr<Lane>& lane : watched) {
        patience = std::min(patience, lane->in_flight().patience(now));
    }
    if (ring_) {
        ring_->watch(poll_);
    }
    wakeup_->watch(poll_);
    poll_.wait(after(now, patience));
    (void)wakeup_->drain();
}

void Watchdog::hear(Instant now) {
    for (const Notice& notice : ring_->progress()) {
        if (notice.kind == Notice::Kind::left) {
            const std::lock_guard lock(mutex_);
            departed_.emplace(notice.origin, now);
            for (const std::shared_ptr<Lane>& lane : lanes_) {
                lane->in_flight().note_departure(notice.origin, now);
            }
            continue;
        }
        if (notice.kind == Notice::Kind::standing) {
            hear_standing(notice, now);
        } else {
            hear_ended(notice);
        }
    }
}

void Watchdog::hear_ended(const Notice& notice) {
    const std::string who = "rank " + std::to_string(notice.origin);
    GroupFailure failure{.code = notice.code, .cause = notice.text, .reported = true};
    if (!notice.text.starts_with(who + " (")) {
        failure.cause =
            who +
            (notice.code == Errc::fenced ? " has given the group up: " : " has ended the group: ") +
            notice.text;
    }
    if (notice.code == Errc::fenced) {
        failure.code = Errc::disconnected;
    }
    if (held_ && (notice.about == 0 || notice.about == held_->lane->identity().scope)) {
        failure.operation = std::exchange(held_, std::nullopt)->failure.operation;
    }
    finish(notice.about, failure);
}

void Watchdog::hear_standing(const Notice& notice, Instant now) {
    const std::vector<std::shared_ptr<Lane>> watched = lanes();
    const auto lane = std::ranges::find_if(watched, [&](const std::shared_ptr<Lane>& each) {
        return each->identity().scope == notice.about;
    });
    // A rank that has released its lane takes part in nothing any more.
    roll_call_->hear(notice, lane == watched.end() ? Standing() : (*lane)->in_flight().standing(),
                     now);
    if (lane != watched.end()) {
        if (const auto failure =
                (*lane)->in_flight().compare(notice.origin, standing_of(notice.text).value())) {
            end_all(*failure);
        }
    }
}

void Watchdog::take_failure(const std::shared_ptr<Lane>& lane, GroupFailure failure, Instant now) {
    const std::uint32_t scope = lane->identity().scope;
    if (failure.code == Errc::fenced) {
        // The other ranks must get the reason before they see a connection of NCCL break.
        tell_others(scope, failure);
        finish(scope, failure);
    } else if ((failure.code == Errc::disconnected || failure.may_be_peer || failure.expired) &&
               ring_) {
        if (!held_) {
            if (failure.expired) {
                roll_call_->tell(scope, lane->in_flight().standing(), now);
            }
            held_ = Held{.lane = lane, .failure = std::move(failure), .since = now};
        }
    } else {
        end_all(failure);
    }
}

// For a rank that has left in order, NCCL reports only that it is gone.
std::optional<GroupFailure> Watchdog::explained(Instant now) {
    if (!held_ || (!held_->failure.expired && now < after(held_->since, kNameMax))) {
        return std::nullopt;
    }
    const GroupIdentity& identity = held_->lane->identity();
    const std::lock_guard lock(mutex_);
    std::optional<GroupFailure> failure = held_->failure;
    if (failure->expired) {
        failure = roll_call_->explain(*failure, identity, departed_, held_->since, now);
    }
    const auto departed = std::ranges::find_if(
        identity.members, [this](std::uint32_t member) { return departed_.contains(member); });
    if (failure && departed != identity.members.end()) {
        failure->code = Errc::disconnected;
        failure->cause = identity.name_of(*departed) + " has left the group: " + failure->cause;
    }
    return failure;
}

void Watchdog::end_all(const GroupFailure& failure) {
    tell_others(0, failure);
    finish(0, failure);
}

void Watchdog::tell_others(std::uint32_t scope, const GroupFailure& failure) {
    if (ring_) {
        const std::string met_by = failure.operation.empty() ? "" : failure.operation + ": ";
        ring_->announce({.kind = Notice::Kind::failed,
                         .code = failure.code,
                         .origin = rank_,
                         .about = scope,
                         .text = met_by + failure.cause});
    }
}

void Watchdog::finish(std::uint32_t scope, const GroupFailure& failure) {
    std::vector<std::shared_ptr<Lane>> ended;
    {
        const std::lock_guard lock(mutex_);
        ended_.emplace(scope, failure);
        const auto concerned = [&](const std::shared_ptr<Lane>& lane) {
            return scope == 0 || lane->identity().scope == scope;
        };
        std::ranges::copy_if(lanes_, std::back_inserter(ended), concerned);
        std::erase_if(lanes_, concerned);
    }
    for (const std::shared_ptr<Lane>& lane : ended) {
        // Release waiting callers first; the reaper frees the GPU's part later.
        lane->in_flight().end(failure);
    }
    if (!ended.empty()) {
        reaper_->take(
            [&api = backend_.api, ended = std::move(ended)] { Lane::abort_all(api, ended); });
    }
}

}  // namespace regroup::nccl
