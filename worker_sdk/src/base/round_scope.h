// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <atomic>
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

/// What all that is made from one Context has in common: it ends together, and its operations are
/// counted together. Shared by the copies of the Context, by its stores and its groups.
class RoundScope {
   public:
    using Listener = std::function<void(const std::string& reason)>;

    /// A listener's place; once it is left, the listener is not running and will not be called.
    class Registration {
       public:
        Registration() = default;
        /// Calls `listener` once, when the scope is interrupted: from the thread that does it, or
        /// from here at once if that has happened. It waits for nobody and does not register.
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

    /// Hears of the first connection of each group that breaks: `peer` is the rank, in the world,
    /// at its other end, which may be dead or alive, and `how` the rest of a sentence about it.
    /// Called from the group's thread, for which it must not wait.
    using BreakListener = std::function<void(std::uint32_t peer, const std::string& how)>;
    void on_break(BreakListener listener);
    void note_break(std::uint32_t peer, const std::string& how) noexcept;

    /// Counts into `issued` and `done` from now on, which outlive all that is made from this scope.
    /// Before any group is formed.
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
    std::list<Listener> listeners_;      // guarded by mutex_
    BreakListener break_listener_;       // guarded by mutex_
    std::optional<std::string> reason_;  // guarded by mutex_
    std::atomic<std::uint64_t> own_issued_ = 0;
    std::atomic<std::uint64_t> own_done_ = 0;
    std::atomic<std::uint64_t>* issued_ = &own_issued_;
    std::atomic<std::uint64_t>* done_ = &own_done_;
    std::atomic<const char*> last_operation_ = "";
};

/// How the SDK gets at the scope of a Context.
struct ContextScope {
    [[nodiscard]] static const std::shared_ptr<RoundScope>& of(const Context& context) noexcept {
        return context.scope_;
    }
};

}  // namespace regroup
