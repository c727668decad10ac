// SPDX-License-Identifier: Apache-2.0
#include <regroup/error.h>
#include <regroup/lr_schedule.h>

#include <cmath>
#include <numbers>

namespace regroup {
namespace {

[[noreturn]] void refuse_schedule(const std::string& detail) {
    throw Error(Errc::invalid_argument, "learning-rate schedule: " + detail);
}

}  // namespace

CosineWarmRestarts::CosineWarmRestarts(const CosineWarmRestartsOptions& options)
    : options_(options) {
    if (options.t_0 == 0 || options.t_mult == 0) {
        refuse_schedule(std::string(options.t_0 == 0 ? "t_0" : "t_mult") +
                        " is 0; it is at least 1");
    }
    if (!std::isfinite(options.base_lr) || !std::isfinite(options.eta_min)) {
        refuse_schedule("base_lr " + std::to_string(options.base_lr) + " and eta_min " +
                        std::to_string(options.eta_min) + " must be numbers");
    }
}

double CosineWarmRestarts::lr_at(double epoch) const noexcept {
    auto period = static_cast<double>(options_.t_0);
    double since_restart = epoch;
    if (options_.t_mult == 1) {
        since_restart = std::fmod(epoch, period);
    } else {
        // Period by period, not by a logarithm, whose rounding puts some restarts one period late.
        while (since_restart >= period) {
            since_restart -= period;
            period *= static_cast<double>(options_.t_mult);
        }
    }
    return options_.eta_min + (options_.base_lr - options_.eta_min) *
                                  (1.0 + std::cos(std::numbers::pi * since_restart / period)) / 2.0;
}

void CosineWarmRestarts::step() noexcept {
    epoch_ = std::floor(epoch_) + 1.0;
}

void CosineWarmRestarts::step_to(double epoch) {
    if (!(epoch >= 0.0) || !std::isfinite(epoch)) {
        refuse_schedule("there is no epoch " + std::to_string(epoch));
    }
    epoch_ = epoch;
}

void CosineWarmRestarts::save(Checkpoint& checkpoint, const std::string& name) const {
    checkpoint.set_number(name + ".epoch", epoch_);
}

void CosineWarmRestarts::load(const Checkpoint& checkpoint, const std::string& name) {
    step_to(checkpoint.number(name + ".epoch"));
}

}  // namespace regroup
