// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/job_event.h"

#include "rendezvous/base/names.h"

namespace regroup::rendezvous {

std::string_view to_string(JobEvent::Kind kind) noexcept {
    return name_in({"joined", "left", "lost", "draining", "quarantined", "released", "restored",
                    "assigned", "running", "failed", "slow", "hanging", "finished", "changing",
                    "ending", "recovered", "closed"},
                   kind);
}

}  // namespace regroup::rendezvous
