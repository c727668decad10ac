// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::link {

using worker_link::Phase;
using worker_link::WorkerPage;

/// Writes the activity of this worker into the page that its agent reads; without an agent, into a
/// private page. Used by the thread of the loop.
class ProgressReporter {
   public:
    explicit ProgressReporter(WorkerPage* page) noexcept : page_(page != nullptr ? page : &own_) {}
    ProgressReporter(const ProgressReporter&) = delete;
    ProgressReporter& operator=(const ProgressReporter&) = delete;

    /// Counts the operations of `scope` as those of this round.
    void begin_round(std::uint64_t round, RoundScope& scope) noexcept;
    void set_phase(Phase phase) noexcept;
    void suspend() noexcept;
    void finished() noexcept { page_->finished.store(1); }
    /// `now`: the present time, which the loop has read already.
    void committed(std::uint64_t step, Instant now = SteadyClock().now()) noexcept;
    /// Called when the committed state is being overwritten.
    void forget_state() noexcept { page_->step.store(0); }
    [[nodiscard]] Phase phase() const noexcept { return page_->phase.load(); }
    void begin_section(std::string_view name) noexcept;
    void end_section() noexcept;
    /// Of `total` bytes. At most one transfer at a time.
    void begin_transfer(worker_link::TransferKind kind, std::uint64_t total) noexcept;
    void add_transferred(std::uint64_t bytes) noexcept;
    void end_transfer() noexcept;
    [[nodiscard]] bool transfers() const noexcept {
        return page_->transfer.kind.load() != worker_link::TransferKind::none;
    }
    /// While this thread waits for an operation called `name`.
    void set_waiting(bool waiting, const char* name) noexcept;

   private:
    /// Repeated work: steps, and each section by its name.
    struct Kind {
        std::array<char, sizeof WorkerPage::section> name{};
        std::int64_t longest = 0;  ///< In ns.
    };

    /// Shows `phase` and ends the previous work; `whole` if that was not interrupted.
    void begin(Phase phase, Kind* kind, bool whole, Instant now = SteadyClock().now()) noexcept;
    /// The kind of the section `name`; null if there are too many.
    [[nodiscard]] Kind* kind_of(std::string_view name) noexcept;
    void set_name(std::string_view name) noexcept;

    WorkerPage own_{};
    WorkerPage* const page_;
    Kind steps_;
    std::array<Kind, 64> sections_;
    std::size_t sections_count_ = 0;
    Kind* kind_ = nullptr;  ///< Of the present work, if it is repeated work.
    std::int64_t since_ = 0;
};

/// Registers the reporter of a loop for this thread, while the object lives.
class ThreadReporter {
   public:
    explicit ThreadReporter(ProgressReporter& reporter) noexcept;
    ~ThreadReporter();
    ThreadReporter(const ThreadReporter&) = delete;
    ThreadReporter& operator=(const ThreadReporter&) = delete;

   private:
    ProgressReporter* const before_;
};

/// A section for long work of the SDK, so that it is not taken for a hang. Has no effect outside a
/// step, or inside a section of the user.
class SdkSection {
   public:
    explicit SdkSection(std::string_view name) noexcept;
    ~SdkSection();
    SdkSection(const SdkSection&) = delete;
    SdkSection& operator=(const SdkSection&) = delete;

   private:
    ProgressReporter* reporter_ = nullptr;
};

/// Shows a transfer of the SDK while the object lives. Has no effect inside another one, or in a
/// thread without a loop.
class SdkTransfer {
   public:
    SdkTransfer(worker_link::TransferKind kind, std::uint64_t total) noexcept;
    ~SdkTransfer();
    SdkTransfer(const SdkTransfer&) = delete;
    SdkTransfer& operator=(const SdkTransfer&) = delete;
    /// So many more bytes of this thread's transfer, if there is one, have been moved.
    static void add(std::uint64_t bytes) noexcept;

   private:
    ProgressReporter* reporter_ = nullptr;
};

/// Measures and shows the waiting of the loop's thread.
class WaitReporter final : public WaitMeter {
   public:
    explicit WaitReporter(ProgressReporter& reporter) noexcept : reporter_(reporter) {}
    /// Called at the begin of a round.
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
