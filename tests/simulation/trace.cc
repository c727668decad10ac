// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/trace.h"

#include <cstdio>
#include <utility>

namespace regroup::simulation {

void Trace::add(Duration since_start, std::string line) {
    if (!keeps_text()) {
        return;
    }
    char stamp[32];
    std::snprintf(stamp, sizeof stamp, "[%12.6f] ",
                  std::chrono::duration<double>(since_start).count());
    lines_.push_back(stamp + std::move(line));
    if (lines_.size() > lines_max_) {
        lines_.pop_front();
    }
}

}  // namespace regroup::simulation
