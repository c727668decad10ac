// SPDX-License-Identifier: Apache-2.0
#include "agent/process/exit_status.h"

namespace regroup::agent {

ExitStatus ExitStatus::from(const siginfo_t& info) noexcept {
    if (info.si_code == CLD_EXITED) {
        return ExitStatus{info.si_status, 0, false};
    }
    return ExitStatus{0, info.si_status, info.si_code == CLD_DUMPED};
}

std::string ExitStatus::describe() const {
    if (signal == 0) {
        return "exited with code " + std::to_string(exit_code);
    }
    return "ended by signal " + std::to_string(signal) + (core_dumped ? ", core dumped" : "");
}

}  // namespace regroup::agent
