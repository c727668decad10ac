// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "rendezvous/view/job_history.h"

namespace regroup::testing {

inline Instant at(Duration since_begin) {
    return Instant(since_begin);
}

inline rendezvous::JobEvent event(Duration since_begin, rendezvous::JobEvent::Kind kind,
                                  rendezvous::JobEvent::Detail detail = {}) {
    rendezvous::JobEvent event;
    event.at = at(since_begin);
    event.kind = kind;
    event.detail = std::move(detail);
    return event;
}

}  // namespace regroup::testing
