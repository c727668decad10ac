// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace regroup::link {

/// While it lives, SIGTERM from anybody but the agent does not end this process: a scheduler sends
/// it to all processes of a node, and the agent, which gets it as well, may be about to ask the
/// workers to save their state and leave. It rings a bell instead, and who hears that decides.
///
/// Does nothing if the program has other plans for SIGTERM than to end by it, which may come later
/// and stay then. A process that this one forks ends by it as ever. One at a time; a second one
/// does nothing.
class SigtermPutOff {
   public:
    /// `bell` is an eventfd that outlives this. An agent of pid 0 (not visible from here) or in
    /// this very process has no signals that could be told from others': nothing is put off.
    SigtermPutOff(pid_t agent, int bell) noexcept;
    ~SigtermPutOff();
    SigtermPutOff(const SigtermPutOff&) = delete;
    SigtermPutOff& operator=(const SigtermPutOff&) = delete;

   private:
    bool active_ = false;
};

/// What was put off happens now: this process ends by SIGTERM, if its program has no other plans.
void deliver_sigterm() noexcept;

}  // namespace regroup::link
