// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "agent/process/asio_forward.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// Calls a handler from the event loop when a descriptor is readable. Owns the descriptor and makes
/// it non-blocking. Reads nothing.
///
/// A call is only a hint, because readiness can be stale: the owner reads without blocking and arms
/// again.
class ReadableWatch {
   public:
    /// Takes ownership of `fd`. `on_readable` may destroy the watch. Errors: system, when the
    /// kernel cannot watch this descriptor; it is then closed.
    static Result<ReadableWatch> open(boost::asio::io_context& io, UniqueFd fd,
                                      std::function<void()> on_readable);

    ReadableWatch(ReadableWatch&&) noexcept;
    ReadableWatch& operator=(ReadableWatch&&) noexcept;
    /// Closes the descriptor. `on_readable` is not called any more.
    ~ReadableWatch();

    /// Asks for one call of `on_readable`. No effect if such a call is pending.
    void arm();

    [[nodiscard]] int fd() const noexcept;

   private:
    struct State;
    explicit ReadableWatch(std::shared_ptr<State> state);
    static void wait(const std::shared_ptr<State>& state);

    /// The pending handler holds a weak pointer, to detect that the watch is gone.
    std::shared_ptr<State> state_;
};

}  // namespace regroup::agent
