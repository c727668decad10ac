// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/control_line.h"
#include "worker_sdk/src/cpu/mesh.h"
#include "worker_sdk/src/cpu/wire.h"
#include "worker_sdk/src/group/group_failure.h"
#include "worker_sdk/src/group/standing.h"

namespace regroup::cpu {

/// Knows which collective this rank is in, and finds out about the others when one takes long.
///
/// In a tree or a ring a rank hears only from its neighbours. So it cannot tell a rank that never
/// came from one that waits for that rank, and two ranks in different collectives may never
/// exchange a byte. A rank that has waited for a while, or whose time is up, therefore tells all
/// others its standing over the control line. A rank that hears a new standing answers with its
/// own. So every rank knows all of them, and can name the rank that is missing.
///
/// The thread that executes collectives enters and leaves; the helper thread speaks to the others.
class RollCall final : public net::Participant {
   public:
    /// The first wait before this rank calls the roll. Each further wait in the same collective is
    /// twice as long, up to kLongestWait.
    static constexpr Duration kFirstWait = std::chrono::seconds(1);
    static constexpr Duration kLongestWait = std::chrono::minutes(1);

    /// `heard` is called with what another rank has said about itself; `wake` ends the helper
    /// thread's wait.
    RollCall(Mesh& mesh, ControlLine& line,
             std::function<void(std::uint32_t rank, const Standing& standing)> heard,
             std::function<void()> wake);

    // The executing thread.

    /// This rank enters a collective. Throws GroupFailure `invalid_argument` if another rank is
    /// known to be in a different one with the same number.
    void enter(const Signature& signature, Instant now);
    /// The collective is complete on this rank.
    void leave();
    /// Throws GroupFailure `invalid_argument` unless `theirs`, which `peer` has begun to send, is
    /// the current collective or one that this rank has not entered yet.
    void check(std::uint32_t peer, const Signature& theirs) const;
    /// When to call `call` if the current collective is not complete by then.
    [[nodiscard]] Instant next_call() const;
    /// Lets the helper thread tell the others this rank's standing, and ask for theirs.
    void call(Instant now);

    // The helper thread.

    /// The time of the current collective, `failure.expired`, is up. A turn throws `failure`,
    /// with the ranks that are missing as its cause if there are any, as soon as these are known.
    void expire(const GroupFailure& failure);

    void watch(net::PollSet& /*poll*/) override {}
    void progress() override;
    [[nodiscard]] Instant next_deadline() const override;

   private:
    struct Expired {
        GroupFailure failure;
        Instant at;
    };

    [[nodiscard]] bool hear(std::uint32_t rank, const Standing& standing);
    void tell(Instant now);
    [[noreturn]] void disagree(std::uint32_t peer, const Signature& theirs,
                               const std::string& ours) const;

    Mesh& mesh_;
    ControlLine& line_;
    const std::function<void(std::uint32_t, const Standing&)> heard_;
    const std::function<void()> wake_;
    const std::vector<std::uint32_t> others_;

    mutable std::mutex mutex_;
    // Guarded by mutex_.
    std::optional<Signature> current_;
    std::deque<Signature> finished_;  // The last few.
    Standings standings_;             // Of the other ranks.
    Instant next_call_ = Instant::max();
    Duration wait_{};
    bool call_is_due_ = false;

    // Used by the helper alone.
    std::uint64_t version_ = 0;
    Instant told_at_{};
    std::optional<Expired> expired_;
};

}  // namespace regroup::cpu
