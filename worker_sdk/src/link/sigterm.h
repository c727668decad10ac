// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace regroup::link {

/// While the object lives, SIGTERM that the agent has not sent does not end this process but writes
/// to an eventfd, and its reader decides. The reason: a scheduler sends the signal to all processes
/// of a node, and the agent, which gets it too, may soon ask the workers to save their state and
/// leave.
///
/// Does nothing if the program handles or ignores SIGTERM; it may also begin to do so later. A fork
/// of this process ends by SIGTERM as usual. One object at a time; a second one does nothing.
class SigtermPutOff {
   public:
    /// `bell` is an eventfd that outlives this object. Nothing is deferred if the agent's pid is 0
    /// (not visible from here) or that of this process, since its signals cannot be recognised.
    SigtermPutOff(pid_t agent, int bell) noexcept;
    ~SigtermPutOff();
    SigtermPutOff(const SigtermPutOff&) = delete;
    SigtermPutOff& operator=(const SigtermPutOff&) = delete;

    /// Such signals have no effect any more, until this process ends: it has saved its state and is
    /// about to end by itself.
    void ignore_from_now_on() noexcept;

   private:
    bool active_ = false;
};

/// Delivers the deferred signal: this process ends by SIGTERM, unless its program handles it.
void deliver_sigterm() noexcept;

}  // namespace regroup::link
