// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>

#include "agent/process/asio_forward.h"
#include "agent/process/unique_fd.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Tells its owner, from the event loop, when a descriptor is readable. Owns the descriptor and
/// makes it non-blocking; reads nothing.
///
/// A call is a hint, not a promise: readiness can be stale, so the owner asks the kernel without
/// blocking and arms again.
class ReadableWatch {
   public:
    /// Takes over `fd`. `on_readable` may destroy the watch. Errors: system, when the kernel cannot
    /// watch this descriptor; it is closed then.
    static Result<ReadableWatch> open(boost::asio::io_context& io, UniqueFd fd,
                                      std::function<void()> on_readable);

    ReadableWatch(ReadableWatch&&) noexcept;
    ReadableWatch& operator=(ReadableWatch&&) noexcept;
    /// Closes the descriptor. `on_readable` is not called any more.
    ~ReadableWatch();

    /// Asks for one call of `on_readable`, at once if the descriptor is readable already. Asked
    /// again before that call: no effect.
    void arm();

    [[nodiscard]] int fd() const noexcept;

   private:
    struct State;
    explicit ReadableWatch(std::shared_ptr<State> state);
    static void wait(const std::shared_ptr<State>& state);

    /// The pending handler holds it weakly, and so finds out that the watch is gone.
    std::shared_ptr<State> state_;
};

}  // namespace regroup::agent
