// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/snapshot/whole_watch.h"

#include <regroup/error.h>

#include <algorithm>
#include <exception>
#include <string_view>
#include <utility>

#include "worker_sdk/src/base/helper_thread.h"
#include "worker_sdk/src/store/interruptible_store.h"

namespace regroup::snapshot {
namespace {

/// A wait in the store ends at the latest then, to tell the store about what was saved meanwhile.
constexpr Duration kWaitSlice = std::chrono::milliseconds(250);
/// Between two looks at a store that other threads use too, or at a copy that the agent makes.
constexpr Duration kLookSlice = std::chrono::milliseconds(2);
/// Between two looks at the store while the agent makes a copy.
constexpr Duration kStoreSlice = std::chrono::milliseconds(50);
/// Of how many versions the verdicts stay in the store, for ranks that are behind.
constexpr std::size_t kVerdictsKept = 8;
/// Added to the count of a version by a rank that wants it in the folder.
constexpr std::int64_t kWrite = std::int64_t{1} << 32U;
/// Added to the count of copies by a rank whose part could not be copied.
constexpr std::int64_t kInVain = std::int64_t{1} << 32U;

constexpr std::string_view kWholeVerdict = "whole";
constexpr std::string_view kWriteVerdict = "whole write";
constexpr std::string_view kAbandonedVerdict = "abandoned";
constexpr std::string_view kKept = "kept";
constexpr std::string_view kKeptWithoutCopies = "kept without copies";

std::string key_of(const char* what, const Version& version) {
    return std::string(what) + "/" + std::to_string(version.round) + "." +
           std::to_string(version.step);
}

}  // namespace

WholeWatch::WholeWatch(MemberStore store, std::uint64_t parts, std::shared_ptr<RoundScope> scope,
                       Hooks hooks)
    : store_(std::move(store)),
      parts_(parts),
      hooks_(std::move(hooks)),
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

void WholeWatch::enqueue(const Version& version, const Pending& pending) {
    const std::lock_guard lock(mutex_);
    if (state_.failure) {
        return;
    }
    pending_[version] = pending;
    if (!thread_.joinable()) {
        thread_ = start_helper_thread("regroup-whole", [this] { watch_until_stopped(); });
    }
    changed_.notify_all();
}

void WholeWatch::saved(const Version& version, bool counts, bool write) {
    enqueue(version, {.counts = counts, .write = write});
}

void WholeWatch::loaded(const Version& version, bool counts) {
    {
        const std::lock_guard lock(mutex_);
        state_.whole = version;
    }
    enqueue(version, {.counts = counts, .is_told = true, .is_whole = true});
}

void WholeWatch::begin_from(const Version& version) {
    const std::lock_guard lock(mutex_);
    state_.whole = state_.kept = state_.copied = version;
}

void WholeWatch::abandon(const Version& version) {
    enqueue(version, {.is_abandoned = true});
}

WholeWatch::State WholeWatch::look() const {
    const std::lock_guard lock(mutex_);
    State state = state_;
    for (const auto& [version, pending] : pending_) {
        if (!pending.is_abandoned) {
            state.pending.push_back(version);
        }
    }
    return state;
}

bool WholeWatch::await_whole(const Version& version, Instant deadline) const {
    std::unique_lock lock(mutex_);
    const auto is_whole = [&] { return state_.whole && *state_.whole >= version; };
    changed_.wait_until(lock, deadline,
                        [&] { return is_whole() || state_.failure || !is_pending(version); });
    return is_whole();
}

bool WholeWatch::await_kept(const Version& version, Instant deadline) const {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline,
                               [&] { return state_.failure || !is_pending(version); });
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
            const AllPending pending = pending_;
            lock.unlock();
            for (const auto& [version, each] : pending) {
                if (!each.is_told) {
                    tell(version, each);
                }
                if (!each.is_whole || !each.counts || each.is_copied) {
                    continue;
                }
                const Keeper::Copied copied = hooks_.is_copied(version);
                if (copied != Keeper::Copied::no) {
                    tell_copied(version, copied == Keeper::Copied::in_vain);
                }
            }
            if (await_change(pending.begin()->first, pending.begin()->second)) {
                for (const auto& [version, each] : pending) {
                    take_news(version, each);
                }
            }
        }
    } catch (const Error& error) {
        fail({error.code(), error.what()});
    } catch (const std::exception& error) {
        fail({Errc::system, error.what()});
    }
}

void WholeWatch::tell(const Version& version, const Pending& pending) {
    const std::string verdict = key_of("whole", version);
    const std::int64_t count =
        pending.counts ? store_.add(key_of("saved", version), pending.write ? kWrite + 1 : 1) : 0;
    const bool is_last = pending.counts && count % kWrite == static_cast<std::int64_t>(parts_);
    if (is_last) {
        static_cast<void>(store_.propose(verdict, count >= kWrite ? kWriteVerdict : kWholeVerdict));
    } else if (pending.is_abandoned) {
        static_cast<void>(store_.propose(verdict, kAbandonedVerdict));
    }
    if (is_last && decided_.size() >= kVerdictsKept) {
        for (const char* const what : {"saved", "whole", "copied", "kept"}) {
            store_.erase(key_of(what, decided_.front()));
        }
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = pending_.find(version); found != pending_.end()) {
        found->second.is_told = true;
    }
}

void WholeWatch::tell_copied(const Version& version, bool in_vain) {
    const std::int64_t count = store_.add(key_of("copied", version), in_vain ? kInVain + 1 : 1);
    if (count % kInVain == static_cast<std::int64_t>(parts_)) {
        store_.set(key_of("kept", version),
                   std::string(count < kInVain ? kKept : kKeptWithoutCopies));
    }
    const std::lock_guard lock(mutex_);
    if (const auto found = pending_.find(version); found != pending_.end()) {
        found->second.is_copied = true;
    }
}

bool WholeWatch::await_change(const Version& version, const Pending& pending) {
    if (const auto reason = own_scope_->reason()) {
        throw Error(Errc::fenced, "snapshot: " + *reason);
    }
    const bool awaits_copy = pending.is_whole && pending.counts && !pending.is_copied;
    if (!is_own_connection_ || awaits_copy) {
        std::unique_lock lock(mutex_);
        changed_.wait_for(lock, kLookSlice, [this] { return is_over_; });
        const bool looks = !awaits_copy || now() >= next_look_;
        next_look_ = looks ? after(now(), kStoreSlice) : next_look_;
        return looks;
    }
    try {
        store_.wait({key_of(pending.is_whole ? "kept" : "whole", version)}, kWaitSlice);
    } catch (const Error& error) {
        if (error.code() != Errc::deadline_exceeded) {
            throw;
        }
    }
    return true;
}

void WholeWatch::take_news(const Version& version, const Pending& pending) {
    if (!pending.is_whole) {
        if (store_.check(key_of("whole", version))) {
            take_verdict(version, pending);
        }
    } else if ((pending.is_copied || !pending.counts) && store_.check(key_of("kept", version))) {
        take_kept(version);
    }
}

void WholeWatch::take_verdict(const Version& version, const Pending& pending) {
    const std::string verdict = store_.get(key_of("whole", version));
    const bool is_whole = verdict != kAbandonedVerdict;
    if (is_whole) {
        hooks_.on_whole(version, verdict == kWriteVerdict);
    }
    decided_.push_back(version);
    if (decided_.size() > kVerdictsKept) {
        decided_.pop_front();
    }
    const std::lock_guard lock(mutex_);
    if (!is_whole) {
        pending_.erase(version);
    } else {
        state_.whole = std::max(version, state_.whole.value_or(version));
        if (const auto found = pending_.find(version); found != pending_.end()) {
            found->second.is_whole = true;
        }
        if (!pending.counts) {
            // A rank without a part of its own may be so far behind that the earlier verdicts are
            // gone, and it has nothing to protect.
            pending_.erase(pending_.begin(), pending_.lower_bound(version));
        }
    }
    changed_.notify_all();
}

void WholeWatch::take_kept(const Version& version) {
    const bool has_copies = store_.get(key_of("kept", version)) == kKept;
    hooks_.on_kept(version);
    const std::lock_guard lock(mutex_);
    state_.kept = std::max(version, state_.kept.value_or(version));
    if (has_copies) {
        state_.copied = std::max(version, state_.copied.value_or(version));
    }
    pending_.erase(pending_.begin(), pending_.upper_bound(version));
    changed_.notify_all();
}

void WholeWatch::fail(Failure failure) {
    const std::lock_guard lock(mutex_);
    state_.failure = std::move(failure);
    changed_.notify_all();
}

}  // namespace regroup::snapshot
