// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/restart_budget.h"

#include <algorithm>

namespace regroup::rendezvous {

namespace {

// FNV-1a: the same on every machine, unlike std::hash.
std::uint64_t mixed(std::uint64_t hash, std::uint64_t value) noexcept {
    for (int byte = 0; byte < 8; ++byte) {
        hash = (hash ^ ((value >> (8 * byte)) & 0xffU)) * 1099511628211U;
    }
    return hash;
}

}  // namespace

RestartBudget::RestartBudget(const JobPolicy& policy)
    : budgets_(policy.budgets), failures_max_(policy.restarts_max), seed_(14695981039346656037U) {
    for (const char c : policy.program) {
        seed_ = mixed(seed_, static_cast<unsigned char>(c));
    }
}

void RestartBudget::reach(std::uint64_t step) noexcept {
    if (step == 0) {
        return;
    }
    steps_expected_ = true;
    step_ = std::max(step_, step);
    if (budgets_.refill_steps > 0 && step_ - step_at_end_ >= budgets_.refill_steps) {
        std::fill(std::begin(used_), std::end(used_), 0U);
    }
}

Charge RestartBudget::account(Charge charge) const noexcept {
    return charge == Charge::hang && !budgets_.hangs ? Charge::failure : charge;
}

std::uint32_t RestartBudget::used(Charge charge) const noexcept {
    const Charge where = account(charge);
    return where == Charge::retry || where == Charge::severed
               ? 0
               : used_[static_cast<std::size_t>(where)];
}

std::optional<std::uint32_t> RestartBudget::allowed(Charge charge) const noexcept {
    switch (account(charge)) {
        case Charge::failure:
            return failures_max_;
        case Charge::hang:
            return budgets_.hangs;
        case Charge::loss:
            return budgets_.losses;
        case Charge::retry:
        case Charge::severed:
            return std::nullopt;
    }
    return std::nullopt;
}

RestartBudget::Ruling RestartBudget::charge(Charge charge, RoundId round, Duration lasted,
                                            std::uint32_t count) {
    const bool of_nodes = charge == Charge::loss || charge == Charge::severed;
    const bool progressed = steps_expected_ ? step_ > step_at_end_ : lasted >= kLongRound;
    step_at_end_ = step_;
    if (progressed) {
        rounds_without_progress_ = 0;
    } else if (!of_nodes && (steps_expected_ || charge == Charge::retry)) {
        ++rounds_without_progress_;
    }
    if (charge != Charge::loss) {
        crash_loop_ = progressed || lasted >= kLongRound ? 0 : crash_loop_ + 1;
    }
    if (charge == Charge::severed) {
        return {Answer::again, delay(round)};
    }
    if (const Charge where = account(charge); where != Charge::retry) {
        std::uint32_t& used = used_[static_cast<std::size_t>(where)];
        if (const auto limit = allowed(charge); limit && *limit - std::min(used, *limit) < count) {
            return {Answer::exhausted, {}};
        }
        used += count;
    }
    if (charge == Charge::loss) {
        return {};
    }
    if (budgets_.no_progress_max > 0 && rounds_without_progress_ >= budgets_.no_progress_max) {
        return {Answer::no_progress, {}};
    }
    ++restarts_;
    return {Answer::again, delay(round)};
}

Duration RestartBudget::delay(RoundId round) const noexcept {
    if (crash_loop_ < 2 || budgets_.delay <= Duration::zero()) {
        return Duration::zero();
    }
    Duration delay = std::min(budgets_.delay, kDelayLimit);
    for (std::uint32_t i = 2; i < crash_loop_ && delay < kDelayLimit; ++i) {
        delay *= 2;
    }
    delay = std::min(delay, kDelayLimit);
    // Jobs that failed together must not restart together: 75 % to 125 % of the delay.
    const auto jitter = static_cast<std::int64_t>(mixed(seed_, number(round)) % 501);
    return std::min(kDelayLimit, Duration(delay.count() / 1000 * (750 + jitter)));
}

}  // namespace regroup::rendezvous
