// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::link {

using worker_link::Phase;
using worker_link::WorkerPage;

/// Writes what this worker is doing into the page that its agent looks at; without an agent, into
/// one of its own that nobody does. The thread of the loop.
class ProgressReporter {
   public:
    explicit ProgressReporter(WorkerPage* page) noexcept : page_(page != nullptr ? page : &own_) {}
    ProgressReporter(const ProgressReporter&) = delete;
    ProgressReporter& operator=(const ProgressReporter&) = delete;

    /// The operations of `scope` count as those of this round from now on.
    void begin_round(std::uint64_t round, RoundScope& scope) noexcept;
    void set_phase(Phase phase) noexcept;
    void suspend() noexcept;
    void finished() noexcept { page_->finished.store(1); }
    void committed(std::uint64_t step) noexcept;
    /// What was committed is not here any more, not in one piece.
    void forget_state() noexcept { page_->step.store(0); }
    [[nodiscard]] Phase phase() const noexcept { return page_->phase.load(); }
    void begin_section(std::string_view name) noexcept;
    void end_section() noexcept;
    /// While this thread waits for an operation called `name`.
    void set_waiting(bool waiting, const char* name) noexcept;

   private:
    /// What a process does again and again: steps, and each section by its name.
    struct Kind {
        std::array<char, sizeof WorkerPage::section> name{};
        std::int64_t longest = 0;  ///< In ns.
    };

    /// Shows `phase`, the work that began before being over; `whole` if it was not cut short.
    void begin(Phase phase, Kind* kind, bool whole) noexcept;
    /// That of `name`; null when there are already too many.
    [[nodiscard]] Kind* kind_of(std::string_view name) noexcept;
    void set_name(std::string_view name) noexcept;

    WorkerPage own_{};
    WorkerPage* const page_;
    Kind steps_;
    std::array<Kind, 64> sections_;
    std::size_t sections_count_ = 0;
    Kind* kind_ = nullptr;  ///< Of the present work, if it is of any.
    std::int64_t since_ = 0;
};

/// While it lives, the reporter is that of this thread, on which a loop runs.
class ThreadReporter {
   public:
    explicit ThreadReporter(ProgressReporter& reporter) noexcept;
    ~ThreadReporter();
    ThreadReporter(const ThreadReporter&) = delete;
    ThreadReporter& operator=(const ThreadReporter&) = delete;

   private:
    ProgressReporter* const before_;
};

/// Long work of the SDK's own, in a section if this thread is in a step, and in no section of the
/// user's: what takes longer than a step is no hang then.
class SdkSection {
   public:
    explicit SdkSection(std::string_view name) noexcept;
    ~SdkSection();
    SdkSection(const SdkSection&) = delete;
    SdkSection& operator=(const SdkSection&) = delete;

   private:
    ProgressReporter* reporter_ = nullptr;
};

/// Measures and shows the waiting of the loop's thread.
class WaitReporter final : public WaitMeter {
   public:
    explicit WaitReporter(ProgressReporter& reporter) noexcept : reporter_(reporter) {}
    /// In a round that begins.
    void use(const RoundScope* scope) noexcept {
        scope_ = scope;
        forget_failure();
    }

   private:
    void waiting(bool begins) noexcept override {
        reporter_.set_waiting(begins, scope_ != nullptr ? scope_->last_operation() : "");
    }

    ProgressReporter& reporter_;
    const RoundScope* scope_ = nullptr;
};

}  // namespace regroup::link
