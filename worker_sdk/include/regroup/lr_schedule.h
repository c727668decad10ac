// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/checkpoint.h>

#include <cstdint>
#include <string>

namespace regroup {

struct CosineWarmRestartsOptions {
    /// The learning rate right after each restart.
    double base_lr = 0.1;
    /// Epochs until the first restart. At least 1.
    std::uint64_t t_0 = 10;
    /// Each period is this many times as long as the one before. At least 1.
    std::uint64_t t_mult = 1;
    /// The learning rate at the end of each period.
    double eta_min = 0.0;
};

/// Cosine annealing with warm restarts (SGDR, Loshchilov and Hutter, 2017), as in PyTorch's
/// CosineAnnealingWarmRestarts. Within a period of T_i epochs, T_cur epochs after its start, the
/// rate is
/// - eta_min + (base_lr - eta_min) * (1 + cos(pi * T_cur / T_i)) / 2
///
/// Epochs may be fractional: `step_to(epoch + i / n)` in step i of the n steps of an epoch. The
/// epoch of a restart belongs to the new period.
///
/// A value, the same on every rank that makes the same calls; not thread-safe.
class CosineWarmRestarts {
   public:
    /// At epoch 0. Throws Error `invalid_argument` naming the option that is out of range.
    explicit CosineWarmRestarts(const CosineWarmRestartsOptions& options);

    /// The rate to use now.
    [[nodiscard]] double lr() const noexcept { return lr_at(epoch_); }
    /// The rate at any `epoch`. Requires epoch >= 0 and finite.
    [[nodiscard]] double lr_at(double epoch) const noexcept;
    [[nodiscard]] double epoch() const noexcept { return epoch_; }

    /// To the next whole epoch: floor(epoch()) + 1.
    void step() noexcept;
    /// To any epoch, forwards or backwards. Throws Error `invalid_argument` if it is negative or
    /// not finite.
    void step_to(double epoch);

    /// Saves the epoch in `checkpoint` as `name`, and loads it. Loading throws Error
    /// `invalid_argument` if there is no such entry.
    void save(Checkpoint& checkpoint, const std::string& name = "lr_schedule") const;
    void load(const Checkpoint& checkpoint, const std::string& name = "lr_schedule");

   private:
    CosineWarmRestartsOptions options_;
    double epoch_ = 0.0;
};

}  // namespace regroup
