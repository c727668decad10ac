// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string_view>

#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/round_scope.h"
#include "worker_sdk/src/work.h"

namespace regroup::elastic {

using worker_link::Phase;
using worker_link::WorkerPage;

/// Writes what this worker is doing into the page that its agent looks at; without an agent, into
/// one of its own that nobody does. The thread of the loop.
class Beacon {
   public:
    explicit Beacon(WorkerPage* page) noexcept : page_(page != nullptr ? page : &own_) {}
    Beacon(const Beacon&) = delete;
    Beacon& operator=(const Beacon&) = delete;

    /// The operations of `scope` count as those of this round from now on.
    void begin_round(std::uint64_t round, RoundScope& scope) noexcept;
    void set_phase(Phase phase) noexcept;
    void park() noexcept;
    void committed(std::uint64_t step) noexcept;
    void begin_section(std::string_view name) noexcept;
    void end_section() noexcept;
    /// While this thread waits for an operation called `name`.
    void set_waiting(bool waiting, const char* name) noexcept;

   private:
    void beat() noexcept;
    void set_name(std::string_view name) noexcept;

    WorkerPage own_{};
    WorkerPage* const page_;
};

/// Measures and shows the waiting of the loop's thread.
class BeaconMeter final : public WaitMeter {
   public:
    explicit BeaconMeter(Beacon& beacon) noexcept : beacon_(beacon) {}
    void use(const RoundScope* scope) noexcept { scope_ = scope; }

   private:
    void waiting(bool begins) noexcept override {
        beacon_.set_waiting(begins, scope_ != nullptr ? scope_->last_operation() : "");
    }

    Beacon& beacon_;
    const RoundScope* scope_ = nullptr;
};

}  // namespace regroup::elastic
