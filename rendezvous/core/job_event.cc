// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/job_event.h"

namespace regroup::rendezvous {

std::string_view to_string(JobEvent::Kind kind) noexcept {
    switch (kind) {
        case JobEvent::Kind::joined:
            return "joined";
        case JobEvent::Kind::left:
            return "left";
        case JobEvent::Kind::lost:
            return "lost";
        case JobEvent::Kind::draining:
            return "draining";
        case JobEvent::Kind::quarantined:
            return "quarantined";
        case JobEvent::Kind::released:
            return "released";
        case JobEvent::Kind::restored:
            return "restored";
        case JobEvent::Kind::assigned:
            return "assigned";
        case JobEvent::Kind::running:
            return "running";
        case JobEvent::Kind::failed:
            return "failed";
        case JobEvent::Kind::hanging:
            return "hanging";
        case JobEvent::Kind::finished:
            return "finished";
        case JobEvent::Kind::changing:
            return "changing";
        case JobEvent::Kind::ending:
            return "ending";
        case JobEvent::Kind::recovered:
            return "recovered";
        case JobEvent::Kind::closed:
            return "closed";
    }
    return "unknown";
}

}  // namespace regroup::rendezvous
