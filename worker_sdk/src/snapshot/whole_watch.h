// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/snapshot/version.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/snapshot/keeper.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup::snapshot {

/// Finds out which versions every rank of this round has saved (they are whole), and which are
/// copied, too (they are kept). A thread counts in the store, for each version ROUND.STEP:
///
///     saved/VERSION    how many parts are saved, and how many ranks want it in the folder
///     whole/VERSION    "whole" or "whole write" from the rank that saved the last part, or
///                      "abandoned" from a rank that could not save its part; the first one counts
///     copied/VERSION   how many parts are copied, and how many are not to be waited for
///     kept/VERSION     "kept", or "kept without copies", from the rank whose part came last
///
/// Any thread.
class WholeWatch {
   public:
    struct Hooks {
        /// Of this rank's part: another node has a copy, or no copy is to be made.
        std::function<Keeper::Copied(const Version&)> is_copied{};
        /// `write`: some rank wants the version in the folder.
        std::function<void(const Version&, bool write)> on_whole{};
        std::function<void(const Version&)> on_kept{};
    };
    /// `parts`: how many are saved of each version. The hooks are called on the thread of the
    /// watch, before `look` shows what they tell.
    WholeWatch(MemberStore store, std::uint64_t parts, std::shared_ptr<RoundScope> scope,
               Hooks hooks);
    ~WholeWatch();
    WholeWatch(const WholeWatch&) = delete;
    WholeWatch& operator=(const WholeWatch&) = delete;

    /// This rank has saved the version, and `counts` if a part of its own is in it. `write`: it
    /// wants it in the folder.
    void saved(const Version& version, bool counts, bool write);
    /// All ranks have loaded the version, and each has its part of it in its room: it is whole, and
    /// may have to be copied.
    void loaded(const Version& version, bool counts);
    /// All ranks have loaded the version, and it stays where it is.
    void begin_from(const Version& version);
    /// This rank does not save its part of the version, so that no rank needs to wait for it.
    void abandon(const Version& version);

    struct State {
        std::optional<Version> whole{};    ///< The newest one that is whole.
        std::optional<Version> kept{};     ///< The newest one that is kept,
        std::optional<Version> copied{};   ///< and that with all its copies.
        std::vector<Version> pending{};    ///< Saved or loaded, and not known to be kept.
        std::optional<Failure> failure{};  ///< Nothing more will be known.
    };
    [[nodiscard]] State look() const;
    /// Waits until the version is whole or abandoned, or there is a failure, until `deadline`.
    /// True: it is whole.
    bool await_whole(const Version& version, Instant deadline) const;
    /// Waits until the version is no longer pending, or there is a failure. False: not until
    /// `deadline`.
    [[nodiscard]] bool await_kept(const Version& version, Instant deadline) const;

   private:
    struct Pending {
        bool counts = false;
        bool write = false;
        bool is_told = false;
        bool is_abandoned = false;
        bool is_whole = false;
        bool is_copied = false;  ///< And told.
    };
    using AllPending = std::map<Version, Pending>;

    void enqueue(const Version& version, const Pending& pending);
    void watch_until_stopped();
    void tell(const Version& version, const Pending& pending);
    void tell_copied(const Version& version, bool in_vain);
    /// Waits for what the agent or the store will know next about the version. False: it is too
    /// early to look at the store.
    bool await_change(const Version& version, const Pending& pending);
    void take_news(const Version& version, const Pending& pending);
    void take_verdict(const Version& version, const Pending& pending);
    void take_kept(const Version& version);
    void fail(Failure failure);
    [[nodiscard]] bool is_pending(const Version& version) const {  // With the lock.
        return pending_.contains(version);
    }

    MemberStore store_;  // Of the thread.
    const std::uint64_t parts_;
    const Hooks hooks_;
    /// Ends the waits of the thread.
    const std::shared_ptr<RoundScope> own_scope_ = std::make_shared<RoundScope>();
    RoundScope::Registration registration_;
    bool is_own_connection_ = false;  // Of the thread.
    Instant next_look_{};             // Of the thread: at the store, while a copy is made.
    std::deque<Version> decided_;     // Of the thread: versions with a verdict, the latest last.

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    // Guarded by mutex_.
    AllPending pending_;
    State state_;
    bool is_over_ = false;
    std::thread thread_;
};

}  // namespace regroup::snapshot
