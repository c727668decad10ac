// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/await_descriptor.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <poll.h>

#include "rendezvous/base/ensure.h"

namespace regroup::store {

Readiness await_descriptor(int fd, short events, int interrupt_fd, Instant deadline) {
    constexpr std::chrono::milliseconds kSliceMax = std::chrono::hours(1);
    while (true) {
        std::array<pollfd, 2> entries = {{{interrupt_fd, POLLIN, 0}, {fd, events, 0}}};
        // Rounded up, so that poll does not wake a moment early and spin.
        const auto left = std::chrono::ceil<std::chrono::milliseconds>(
            std::max(deadline - SteadyClock().now(), Duration::zero()));
        const int count = ::poll(entries.data(), entries.size(),
                                 static_cast<int>(std::min(left, kSliceMax).count()));
        ENSURE(count >= 0 || errno == EINTR || errno == EAGAIN || errno == ENOMEM);
        if (count > 0) {
            return entries[0].revents != 0 ? Readiness::interrupted : Readiness::ready;
        }
        if (count == 0 && left <= kSliceMax) {
            return Readiness::timed_out;
        }
    }
}

}  // namespace regroup::store
