// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/doorbell.h"

#include <regroup/error.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <fcntl.h>
#include <unistd.h>

#include "rendezvous/base/result.h"

namespace regroup::cpu {

Doorbell::Doorbell() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC | O_NONBLOCK) != 0) {
        throw Error(Errc::system, system_failure("pipe2", errno).detail);
    }
    bell_.fd = UniqueFd(ends[0]);
    bell_.readable = false;
    button_ = UniqueFd(ends[1]);
}

UniqueFd Doorbell::button_of(const FileTicket& ticket) {
    // With the read end too: without a reader, a write would raise SIGPIPE when the owner is gone.
    return ticket.open(O_RDWR);
}

void Doorbell::ring(const UniqueFd& button) noexcept {
    const std::byte one{};
    // Fails only if the pipe is full, which ends the poll() as well.
    [[maybe_unused]] const ssize_t written = ::write(button.get(), &one, sizeof one);
}

void Doorbell::drain() noexcept {
    if (bell_.readable) {
        // NOLINTNEXTLINE(cppcoreguidelines-pro-type-member-init): written first.
        std::array<std::byte, 4096> rings;
        [[maybe_unused]] const ssize_t got = ::read(bell_.fd.get(), rings.data(), rings.size());
        bell_.readable = false;
    }
}

}  // namespace regroup::cpu
