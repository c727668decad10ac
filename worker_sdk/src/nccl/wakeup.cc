// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/wakeup.h"

#include <regroup/error.h>

#include <cerrno>
#include <cstdint>
#include <sys/eventfd.h>
#include <unistd.h>

#include "rendezvous/base/result.h"

namespace regroup::nccl {

Wakeup::Wakeup() : fd_(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
    if (!fd_.is_open()) {
        throw Error(Errc::system, system_failure("eventfd", errno).detail);
    }
}

void Wakeup::ring() noexcept {
    const std::uint64_t one = 1;
    // Fails only when the counter is full; the poll returns then.
    [[maybe_unused]] const ssize_t written = ::write(fd_.get(), &one, sizeof one);
}

void Wakeup::drain() noexcept {
    std::uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = ::read(fd_.get(), &count, sizeof count);
}

}  // namespace regroup::nccl
