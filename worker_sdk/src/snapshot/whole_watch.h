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

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup::snapshot {

/// Finds out which steps every rank of this round has saved. A thread counts in the store:
///
///     saved/STEP     how many parts are saved, and how many ranks want the step in the folder
///     verdict/STEP   "whole" or "whole write" from the rank that saved the last part, or
///                    "abandoned" from a rank that could not save its part; the first one counts
///
/// Any thread.
class WholeWatch {
   public:
    /// `write`: some rank wants the step in the folder.
    using OnWhole = std::function<void(std::uint64_t step, bool write)>;

    /// `parts`: how many are saved of each step. `on_whole` is called on the thread of the watch
    /// before `look` shows the step as whole.
    WholeWatch(MemberStore store, std::uint64_t parts, std::shared_ptr<RoundScope> scope,
               OnWhole on_whole);
    ~WholeWatch();
    WholeWatch(const WholeWatch&) = delete;
    WholeWatch& operator=(const WholeWatch&) = delete;

    /// This rank has saved `step`, and `counts` if a part of its own is in it. `write`: it wants
    /// the step in the folder.
    void saved(std::uint64_t step, bool counts, bool write);
    /// This rank does not save its part of `step`, so that no rank needs to wait for it.
    void abandon(std::uint64_t step);

    struct State {
        std::optional<std::uint64_t> whole{};  ///< The newest step that is whole.
        std::optional<Failure> failure{};      ///< Nothing more will be known.
    };
    [[nodiscard]] State look() const;
    [[nodiscard]] bool is_pending(std::uint64_t step) const;
    /// Waits until no verdict about `step` is pending, or there is a failure. False: not until
    /// `deadline`.
    [[nodiscard]] bool await_verdict(std::uint64_t step, Instant deadline) const;

   private:
    struct Pending {
        bool counts = false;
        bool write = false;
        bool is_told = false;
        bool is_abandoned = false;
    };
    void enqueue(std::uint64_t step, const Pending& pending);
    void watch_until_stopped();
    void tell(std::uint64_t step, const Pending& pending);
    void await_change(std::uint64_t step);
    void take_verdict(std::uint64_t step);
    void fail(Failure failure);

    MemberStore store_;  // Of the thread.
    const std::uint64_t parts_;
    const OnWhole on_whole_;
    /// Ends the waits of the thread.
    const std::shared_ptr<RoundScope> own_scope_ = std::make_shared<RoundScope>();
    RoundScope::Registration registration_;
    bool is_own_connection_ = false;     // Of the thread.
    std::deque<std::uint64_t> decided_;  // Of the thread: steps with a verdict, the latest last.

    mutable std::mutex mutex_;
    mutable std::condition_variable changed_;
    // Guarded by mutex_.
    std::map<std::uint64_t, Pending> pending_;
    State state_;
    bool is_over_ = false;
    std::thread thread_;
};

}  // namespace regroup::snapshot
