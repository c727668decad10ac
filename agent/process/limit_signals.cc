// SPDX-License-Identifier: Apache-2.0
#include "agent/process/limit_signals.h"

#include <csignal>

namespace regroup::agent {
namespace {

std::vector<int>& ignored() noexcept {
    static std::vector<int> signals;
    return signals;
}

}  // namespace

void outlive_limits() noexcept {
    for (const int number : {SIGXFSZ, SIGXCPU}) {
        if (::signal(number, SIG_IGN) == SIG_DFL) {
            ignored().push_back(number);
        }
    }
}

const std::vector<int>& ignored_limit_signals() noexcept {
    return ignored();
}

}  // namespace regroup::agent
