// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/whole_watch.h"

#include <regroup/error.h>

#include <algorithm>
#include <string_view>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/store/interruptible_store.h"

namespace regroup::snapshot {
namespace {

/// A wait in the store ends at the latest then, to tell the store about steps saved meanwhile.
constexpr Duration kWaitSlice = std::chrono::milliseconds(250);
/// Between two looks at a store that other threads use too.
constexpr Duration kLookSlice = std::chrono::milliseconds(5);
/// Of how many steps the verdicts stay in the store, for ranks that are behind.
constexpr std::size_t kVerdictsKept = 8;

/// Added to the count of a step by a rank that wants it in the folder.
constexpr std::int64_t kWrite = std::int64_t{1} << 32U;

constexpr std::string_view kWholeVerdict = "whole";
constexpr std::string_view kWriteVerdict = "whole write";
constexpr std::string_view kAbandonedVerdict = "abandoned";

std::string saved_key(std::uint64_t step) {
    return "saved/" + std::to_string(step);
}
std::string verdict_key(std::uint64_t step) {
    return "verdict/" + std::to_string(step);
}

}  // namespace

WholeWatch::WholeWatch(MemberStore store, std::uint64_t parts, std::shared_ptr<RoundScope> scope,
                       OnWhole on_whole)
    : store_(std::move(store)),
      parts_(parts),
      on_whole_(std::move(on_whole)),
      registration_(std::move(scope),
                    [own = own_scope_](const std::string& reason) { own->interrupt(reason); }) {}

WholeWatch::~WholeWatch() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    changed_.notify_all();
    own_scope_->interrupt("the snapshot is gone");
    if (thread_.joinable()) {
        thread_.join();
    }
}

void WholeWatch::enqueue(std::uint64_t step, const Pending& pending) {
    const std::lock_guard lock(mutex_);
    if (state_.failure) {
        return;
    }
    pending_[step] = pending;
    if (!thread_.joinable()) {
        thread_ = start_helper_thread("regroup-whole", [this] { watch_until_stopped(); });
    }
    changed_.notify_all();
}

void WholeWatch::saved(std::uint64_t step, bool counts, bool write) {
    enqueue(step, {.counts = counts, .write = write});
}

void WholeWatch::abandon(std::uint64_t step) {
    enqueue(step, {.is_abandoned = true});
}

WholeWatch::State WholeWatch::look() const {
    const std::lock_guard lock(mutex_);
    return state_;
}

bool WholeWatch::is_pending(std::uint64_t step) const {
    const std::lock_guard lock(mutex_);
    return pending_.contains(step);
}

bool WholeWatch::await_verdict(std::uint64_t step, Instant deadline) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline,
                               [&] { return state_.failure || !pending_.contains(step); });
}

void WholeWatch::watch_until_stopped() {
    try {
        if (auto own = connect_again(store_.store(), own_scope_)) {
            store_ = store_.over(std::move(own));
            is_own_connection_ = true;
        }
        for (;;) {
            std::unique_lock lock(mutex_);
            changed_.wait(lock, [this] { return is_over_ || !pending_.empty(); });
            if (is_over_) {
                return;
            }
            const std::map<std::uint64_t, Pending> pending = pending_;
            lock.unlock();
            for (const auto& [step, each] : pending) {
                if (!each.is_told) {
                    tell(step, each);
                }
            }
            await_change(pending.begin()->first);
            for (const auto& [step, each] : pending) {
                if (store_.check(verdict_key(step))) {
                    take_verdict(step);
                }
            }
        }
    } catch (const Error& error) {
        fail({error.code(), error.what()});
    } catch (const std::exception& error) {
        fail({Errc::system, error.what()});
    }
}

void WholeWatch::tell(std::uint64_t step, const Pending& pending) {
    const std::int64_t count =
        pending.counts ? store_.add(saved_key(step), pending.write ? kWrite + 1 : 1) : 0;
    const bool is_last = pending.counts && count % kWrite == static_cast<std::int64_t>(parts_);
    if (is_last) {
        static_cast<void>(
            store_.propose(verdict_key(step), count >= kWrite ? kWriteVerdict : kWholeVerdict));
    } else if (pending.is_abandoned) {
        static_cast<void>(store_.propose(verdict_key(step), kAbandonedVerdict));
    }
    if (is_last && decided_.size() >= kVerdictsKept) {
        store_.erase(saved_key(decided_.front()));
        store_.erase(verdict_key(decided_.front()));
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = pending_.find(step); found != pending_.end()) {
        found->second.is_told = true;
    }
}

void WholeWatch::await_change(std::uint64_t step) {
    if (const auto reason = own_scope_->reason()) {
        throw Error(Errc::fenced, "snapshot: " + *reason);
    }
    if (!is_own_connection_) {
        if (!store_.check(verdict_key(step))) {
            std::unique_lock lock(mutex_);
            changed_.wait_for(lock, kLookSlice, [this] { return is_over_; });
        }
        return;
    }
    try {
        store_.wait({verdict_key(step)}, kWaitSlice);
    } catch (const Error& error) {
        if (error.code() != Errc::deadline_exceeded) {
            throw;
        }
    }
}

void WholeWatch::take_verdict(std::uint64_t step) {
    const std::string verdict = store_.get(verdict_key(step));
    const bool is_whole = verdict != kAbandonedVerdict;
    if (is_whole) {
        on_whole_(step, verdict == kWriteVerdict);
    }
    decided_.push_back(step);
    if (decided_.size() > kVerdictsKept) {
        decided_.pop_front();
    }
    const std::lock_guard lock(mutex_);
    pending_.erase(step);
    if (is_whole) {
        state_.whole = std::max(step, state_.whole.value_or(0));
        // Earlier steps do not matter any more.
        pending_.erase(pending_.begin(), pending_.lower_bound(step));
    }
    changed_.notify_all();
}

void WholeWatch::fail(Failure failure) {
    const std::lock_guard lock(mutex_);
    state_.failure = std::move(failure);
    changed_.notify_all();
}

}  // namespace regroup::snapshot
