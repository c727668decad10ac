// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/store/resolve.h"

namespace regroup::store {

/// A blocking TCP connection whose every wait has a deadline and can be interrupted from another
/// thread. All calls but `interrupt` from one thread at a time.
///
/// Failures: `deadline_exceeded`, `fenced` once interrupted, `disconnected` and `system`. They
/// leave the connection in an unknown state, except for a `receive` that did not get a single byte.
class ClientSocket {
   public:
    ClientSocket();

    /// Tries each address of `host` once, in order. A former connection is closed.
    Result<void> connect(const std::string& host, std::uint16_t port, Instant deadline);
    void close() noexcept { socket_ = UniqueFd(); }

    /// Sends all of `bytes`.
    Result<void> send(std::string_view bytes, Instant deadline);
    /// Receives exactly `count` bytes. Requires an open connection.
    Result<void> receive(char* bytes, std::size_t count, Instant deadline);

    /// Waits until `instant`.
    Result<void> pause_until(Instant instant);

    /// Makes the waiting call, if there is one, and all later ones fail with `fenced`. From any
    /// thread.
    void interrupt() noexcept;

    /// "127.0.0.1:29500", as given to `connect`.
    [[nodiscard]] const std::string& peer() const noexcept { return peer_; }

   private:
    Result<void> connect_to(const SocketAddress& address, Instant deadline);
    Result<void> await(short events, Instant deadline, const char* what);

    std::string peer_;
    UniqueFd socket_;
    UniqueFd interrupt_;  ///< An eventfd, readable once interrupted: for calls that wait.
    std::atomic<bool> interrupted_ = false;  ///< For calls that need not wait.
};

}  // namespace regroup::store
