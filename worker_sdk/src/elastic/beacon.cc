// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/beacon.h"

#include <algorithm>

namespace regroup::elastic {

void Beacon::begin_round(std::uint64_t round, RoundScope& scope) noexcept {
    page_->operations_issued.store(0);
    page_->operations_done.store(0);
    scope.count_into(page_->operations_issued, page_->operations_done);
    page_->round.store(round);
    set_phase(Phase::forming);
}

void Beacon::set_phase(Phase phase) noexcept {
    page_->phase.store(phase);
    beat();
}

void Beacon::park() noexcept {
    page_->round.store(0);
    set_phase(Phase::parked);
}

void Beacon::committed(std::uint64_t step) noexcept {
    page_->step.store(step);
    beat();
}

void Beacon::begin_section(std::string_view name) noexcept {
    set_name(name);
    set_phase(Phase::section);
}

void Beacon::end_section() noexcept {
    set_name("");
    set_phase(Phase::training);
}

void Beacon::set_waiting(bool waiting, const char* name) noexcept {
    if (waiting && page_->phase.load(std::memory_order_relaxed) != Phase::section) {
        set_name(name);
    }
    page_->waiting.store(waiting ? 1 : 0, std::memory_order_release);
}

void Beacon::beat() noexcept {
    page_->beat_at.store(SteadyClock().now().time_since_epoch().count());
    page_->beats.fetch_add(1);
}

void Beacon::set_name(std::string_view name) noexcept {
    const std::size_t count = std::min(name.size(), page_->section.size() - 1);
    std::copy_n(name.begin(), count, page_->section.begin());
    page_->section[count] = '\0';
}

}  // namespace regroup::elastic
