// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/process_group.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "worker_sdk/src/base/process_mark.h"

namespace regroup {

/// Executes operations in the thread that waits for them. Thread-safe.
class WaitHelper {
   public:
    virtual ~WaitHelper() = default;
    /// Called by a thread that waits for `state`. Helps until the state is done. May return earlier
    /// if another thread will complete it.
    virtual void help(const Work::State& state) = 0;
};

/// Adds up how long the thread that created the meter waits for operations, while the meter lives.
/// Reads the clock twice for each wait that blocks. At most one meter per thread.
class WaitMeter {
   public:
    WaitMeter();
    virtual ~WaitMeter();
    WaitMeter(const WaitMeter&) = delete;
    WaitMeter& operator=(const WaitMeter&) = delete;

    [[nodiscard]] Duration waited() const noexcept { return waited_; }
    /// Whether an operation that the thread waited for has failed.
    [[nodiscard]] bool has_failed() const noexcept { return failed_; }
    /// The meter of this thread, or nullptr.
    [[nodiscard]] static WaitMeter* current() noexcept;

    /// Called before and after each wait.
    void begin() noexcept;
    void end() noexcept;
    void note_failure() noexcept { failed_ = true; }

   protected:
    void forget_failure() noexcept { failed_ = false; }

   private:
    virtual void waiting(bool /*begins*/) noexcept {}

    Instant began_{};
    Duration waited_{};
    bool failed_ = false;
};

/// How one operation ended, shared by the thread that carries it out (which calls `succeed` or
/// `fail` exactly once) and any number of handles that wait for it. In a forked child it counts as
/// ended, and wait() throws: the child must carry out nothing.
struct Work::State {
   public:
    explicit State(std::shared_ptr<WaitHelper> helper = nullptr) noexcept
        : helper_(std::move(helper)) {}

    void succeed() { succeed(SteadyClock().now()); }
    /// Records `at` as the end.
    void succeed(Instant at);
    void fail(Errc code, const std::string& detail);

    void wait() const;
    /// Sleeps until the operation has ended in any way.
    void await_done() const;
    [[nodiscard]] bool done() const;
    /// The time at which the operation ended; empty before that.
    [[nodiscard]] std::optional<Instant> completed_at() const;

   private:
    void complete(std::optional<Failure> failure, Instant at);

    const ProcessMark mark_;
    const std::shared_ptr<WaitHelper> helper_;
    mutable std::mutex mutex_;
    mutable std::condition_variable completed_;
    bool done_ = false;               // guarded by mutex_
    Instant completed_at_;            // guarded by mutex_; constant once done_
    std::optional<Failure> failure_;  // guarded by mutex_; constant once done_
};

/// A Work that has failed already.
[[nodiscard]] Work failed_work(Errc code, const std::string& detail);

}  // namespace regroup
