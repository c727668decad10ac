// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/grad_scaler.h>

#include "worker_sdk/src/optim/memory.h"
#include "worker_sdk/src/optim/update_rules.h"

namespace regroup {

struct GradScaler::Impl {
    Impl(const GradScalerOptions& options, const Device& device_in);

    /// On `device`; the host may access it only if that is the CPU.
    [[nodiscard]] optim::ScalerState* state() const noexcept {
        return static_cast<optim::ScalerState*>(memory.data());
    }
    [[nodiscard]] optim::ScalerState read(Stream stream) const {
        optim::ScalerState copy;
        memory.read(&copy, 0, sizeof copy, stream);
        return copy;
    }

    Device device;
    bool enabled;
    optim::ScalerRule rule;
    optim::Memory memory;
    bool unscaled = false;  // this step's gradients have been divided already
};

}  // namespace regroup
