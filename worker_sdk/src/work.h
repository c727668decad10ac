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

namespace regroup {

/// Who can carry operations out in the thread that waits for them. Thread-safe.
class WaitHelper {
   public:
    virtual ~WaitHelper() = default;
    /// Carries on until `state` is done, or returns because somebody else is at it.
    virtual void help(const Work::State& state) = 0;
};

/// How one operation ended, shared by the thread that carries it out (which calls `succeed` or
/// `fail` exactly once) and any number of handles that wait for it.
struct Work::State {
   public:
    explicit State(std::shared_ptr<WaitHelper> helper = nullptr) noexcept
        : helper_(std::move(helper)) {}

    void succeed();
    void fail(Errc code, const std::string& detail);

    void wait() const;
    [[nodiscard]] bool done() const;
    /// When it ended; nothing before that.
    [[nodiscard]] std::optional<Instant> completed_at() const;

   private:
    void complete(std::optional<Failure> failure);

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
