// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/wakeup.h"

#include <regroup/error.h>

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/base/result.h"

namespace regroup::net {

Wakeup::Wakeup() {
    event_.fd = UniqueFd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
    if (!event_.fd) {
        throw Error(Errc::system, system_failure("eventfd", errno).detail);
    }
    event_.readable = false;
}

void Wakeup::ring() noexcept {
    const std::uint64_t one = 1;
    // Fails only when the counter is full; the poll returns then.
    [[maybe_unused]] const ssize_t written = ::write(event_.fd.get(), &one, sizeof one);
}

bool Wakeup::drain() noexcept {
    if (!event_.readable) {
        return false;
    }
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(event_.fd.get(), &count, sizeof count);
    event_.readable = false;
    return true;
}

}  // namespace regroup::net
