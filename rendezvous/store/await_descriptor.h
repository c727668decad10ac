// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "rendezvous/base/clock.h"

namespace regroup::store {

enum class Readiness { ready, timed_out, interrupted };

/// Waits until `fd` is ready for `events` of poll(2); with `fd` -1, until the deadline.
/// `interrupted` as soon as `interrupt_fd` is readable.
[[nodiscard]] Readiness await_descriptor(int fd, short events, int interrupt_fd, Instant deadline);

}  // namespace regroup::store
