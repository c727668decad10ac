// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/progress_reporter.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace regroup::link {
namespace {

thread_local ProgressReporter* of_this_thread = nullptr;

}  // namespace

ThreadReporter::ThreadReporter(ProgressReporter& reporter) noexcept
    : before_(std::exchange(of_this_thread, &reporter)) {}

ThreadReporter::~ThreadReporter() {
    of_this_thread = before_;
}

SdkSection::SdkSection(std::string_view name) noexcept {
    if (of_this_thread != nullptr && of_this_thread->phase() == Phase::training) {
        reporter_ = of_this_thread;
        reporter_->begin_section(name);
    }
}

SdkSection::~SdkSection() {
    if (reporter_ != nullptr) {
        reporter_->end_section();
    }
}

SdkTransfer::SdkTransfer(worker_link::TransferKind kind, std::uint64_t total) noexcept {
    if (of_this_thread != nullptr && !of_this_thread->transfers()) {
        reporter_ = of_this_thread;
        reporter_->begin_transfer(kind, total);
    }
}

SdkTransfer::~SdkTransfer() {
    if (reporter_ != nullptr) {
        reporter_->end_transfer();
    }
}

void SdkTransfer::add(std::uint64_t bytes) noexcept {
    if (of_this_thread != nullptr && of_this_thread->transfers()) {
        of_this_thread->add_transferred(bytes);
    }
}

void ProgressReporter::begin_round(std::uint64_t round, RoundScope& scope) noexcept {
    page_->operations_issued.store(0);
    page_->operations_done.store(0);
    page_->peer_error.store(0);
    scope.count_into(page_->operations_issued, page_->operations_done);
    page_->round.store(round);
    set_phase(Phase::forming);
}

void ProgressReporter::set_phase(Phase phase) noexcept {
    begin(phase, phase == Phase::training ? &steps_ : nullptr, phase == Phase::training);
}

void ProgressReporter::suspend() noexcept {
    page_->round.store(0);
    set_phase(Phase::suspended);
}

void ProgressReporter::committed(std::uint64_t step, Instant now) noexcept {
    page_->step.store(step);
    begin(page_->phase.load(std::memory_order_relaxed), kind_, true, now);
}

void ProgressReporter::begin_section(std::string_view name) noexcept {
    set_name(name);
    begin(Phase::section, kind_of(name), true);
}

void ProgressReporter::end_section() noexcept {
    set_name("");
    begin(Phase::training, &steps_, std::uncaught_exceptions() == 0);
}

void ProgressReporter::begin_transfer(worker_link::TransferKind kind,
                                      std::uint64_t total) noexcept {
    page_->transfer.done.store(0);
    page_->transfer.total.store(total);
    page_->transfer.kind.store(kind);
}

void ProgressReporter::add_transferred(std::uint64_t bytes) noexcept {
    page_->transfer.done.fetch_add(bytes, std::memory_order_relaxed);
}

void ProgressReporter::end_transfer() noexcept {
    page_->transfer.kind.store(worker_link::TransferKind::none);
}

void ProgressReporter::set_waiting(bool waiting, const char* name) noexcept {
    if (waiting && page_->phase.load(std::memory_order_relaxed) != Phase::section) {
        set_name(name);
    }
    page_->waiting.store(waiting ? 1 : 0, std::memory_order_release);
}

// The agent reads `beats` first.
void ProgressReporter::begin(Phase phase, Kind* kind, bool whole, Instant now) noexcept {
    const std::int64_t at = now.time_since_epoch().count();
    if (kind_ != nullptr && whole) {
        kind_->longest = std::max(kind_->longest, at - since_);
    }
    kind_ = kind;
    since_ = at;
    page_->phase.store(phase);
    page_->longest.store(kind != nullptr ? kind->longest : 0);
    page_->beat_at.store(at);
    page_->beats.fetch_add(1);
}

ProgressReporter::Kind* ProgressReporter::kind_of(std::string_view name) noexcept {
    const std::string_view key = name.substr(0, steps_.name.size() - 1);
    for (std::size_t i = 0; i < sections_count_; ++i) {
        if (key == sections_[i].name.data()) {
            return &sections_[i];
        }
    }
    if (sections_count_ == sections_.size()) {
        return nullptr;
    }
    Kind& kind = sections_[sections_count_++];
    std::copy(key.begin(), key.end(), kind.name.begin());
    return &kind;
}

void ProgressReporter::set_name(std::string_view name) noexcept {
    const std::size_t count = std::min(name.size(), page_->section.size() - 1);
    std::copy_n(name.begin(), count, page_->section.begin());
    page_->section[count] = '\0';
}

}  // namespace regroup::link
