// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <sys/socket.h>
#include <vector>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::store {

struct SocketAddress {
    sockaddr_storage storage{};
    socklen_t bytes = 0;

    [[nodiscard]] const sockaddr* get() const noexcept {
        return reinterpret_cast<const sockaddr*>(&storage);
    }
};

/// The addresses of `host`, a name or a numeric address, IPv6 ones first as PyTorch's clients try
/// them. Fails with `deadline_exceeded`, with `fenced` as soon as `interrupt_fd` is readable, and
/// with `disconnected` when the name is not known, which may change.
///
/// A look-up in the C library can take a minute and cannot be interrupted. Therefore a separate
/// thread looks up the name, and is abandoned when the caller stops waiting.
Result<std::vector<SocketAddress>> resolve(const std::string& host, std::uint16_t port,
                                           Instant deadline, int interrupt_fd);

}  // namespace regroup::store
