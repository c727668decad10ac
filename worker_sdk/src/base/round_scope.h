// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace regroup {

/// The scope of a Context: everything that is created from one Context ends together, and its
/// operations are counted together. Shared by the copies of the Context, its stores and its groups.
class RoundScope {
   public:
    using Listener = std::function<void(const std::string& reason)>;

    /// The registration of a listener. After `leave`, the listener is not running and will not be
    /// called.
    class Registration {
       public:
        Registration() = default;
        /// Calls `listener` once, when the scope is interrupted: on the interrupting thread, or
        /// here at once if that has happened. The listener must not block and must not register.
        Registration(std::shared_ptr<RoundScope> scope, Listener listener);
        ~Registration() { leave(); }
        Registration(const Registration&) = delete;
        Registration& operator=(const Registration&) = delete;
        void leave() noexcept;

       private:
        std::shared_ptr<RoundScope> scope_;
        std::list<Listener>::iterator place_{};
    };

    /// Ends everything as `fenced`, now and in future; the first reason stays. Any thread.
    void interrupt(std::string_view reason) noexcept;
    [[nodiscard]] std::optional<std::string> reason() const;
    /// Waits at most `limit` until the scope is interrupted; false if it is not. Any thread.
    [[nodiscard]] bool await_end(std::chrono::nanoseconds limit) const;

    /// Called for the first connection of each group that breaks: `peer` is the world rank at its
    /// other end, dead or alive, and `how` is the rest of a sentence about it. Called on the
    /// group's thread; must not wait for that thread.
    using BreakListener = std::function<void(std::uint32_t peer, const std::string& how)>;
    void on_break(BreakListener listener);
    void note_break(std::uint32_t peer, const std::string& how) noexcept;

    /// Why an operation has failed because of another rank. The values are those of
    /// worker_link::PeerError.
    enum class PeerFault : std::uint32_t {
        awaited = 1,  ///< It did not come in time.
        lost = 2,     ///< It had ended, or had given up.
    };
    /// Writes each fault into `place` from now on, which outlives everything created from this
    /// scope.
    void tell_peer_faults(std::atomic<std::uint32_t>& place) noexcept { peer_fault_ = &place; }
    /// Call before the caller of the operation hears of the failure. Any thread.
    void note_peer_fault(PeerFault fault) noexcept {
        peer_fault_.load(std::memory_order_relaxed)->store(static_cast<std::uint32_t>(fault));
    }

    /// Counts into `issued` and `done` from now on, which outlive everything created from this
    /// scope. Call it before a group is formed.
    void count_into(std::atomic<std::uint64_t>& issued, std::atomic<std::uint64_t>& done) noexcept {
        issued_ = &issued;
        done_ = &done;
    }
    /// An operation called `name`, a literal, was issued. Any thread.
    void note_issued(const char* name) noexcept {
        issued_->fetch_add(1, std::memory_order_relaxed);
        last_operation_.store(name, std::memory_order_relaxed);
    }
    void note_done() noexcept { done_->fetch_add(1, std::memory_order_relaxed); }
    [[nodiscard]] const char* last_operation() const noexcept {
        return last_operation_.load(std::memory_order_relaxed);
    }

   private:
    mutable std::mutex mutex_;
    mutable std::condition_variable interrupted_;  // With mutex_: reason_ has been set.
    std::list<Listener> listeners_;                // Guarded by mutex_.
    BreakListener break_listener_;                 // Guarded by mutex_.
    std::optional<std::string> reason_;            // Guarded by mutex_.
    std::atomic<std::uint64_t> own_issued_ = 0;
    std::atomic<std::uint64_t> own_done_ = 0;
    std::atomic<std::uint32_t> own_peer_fault_ = 0;
    std::atomic<std::atomic<std::uint32_t>*> peer_fault_ = &own_peer_fault_;
    std::atomic<std::uint64_t>* issued_ = &own_issued_;
    std::atomic<std::uint64_t>* done_ = &own_done_;
    std::atomic<const char*> last_operation_ = "";
};

/// Gives the SDK access to the scope of a Context.
struct ContextScope {
    [[nodiscard]] static const std::shared_ptr<RoundScope>& of(const Context& context) noexcept {
        return context.scope_;
    }
};

}  // namespace regroup
