// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/step_clock.h"

namespace regroup::elastic {

void StepClock::open(Instant now, Duration waited) noexcept {
    opened_ = {now, waited};
    data_began_.reset();
    times_ = {};
}

void StepClock::begin_data(Instant now, Duration waited) noexcept {
    data_began_ = {now, waited};
}

void StepClock::end_data(Instant now, Duration waited) noexcept {
    if (data_began_) {
        times_.data += data_began_->worked({now, waited});
        data_began_.reset();
    }
}

void StepClock::reach_commit(Instant now, Duration waited) noexcept {
    end_data(now, waited);
    times_.communication = waited - opened_.waited;
    times_.compute = opened_.worked({now, waited}) - times_.data;
    reached_at_ = now;
}

void StepClock::begin_apply(Instant now) noexcept {
    times_.waiting = now - reached_at_;
    apply_began_ = now;
}

link::StepTimes StepClock::close(Instant now) noexcept {
    times_.compute += now - apply_began_;
    return times_;
}

}  // namespace regroup::elastic
