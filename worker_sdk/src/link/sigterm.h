// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <sys/types.h>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/net/wakeup.h"

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
    /// In the place of the agent's pid, for a process that has no agent.
    static constexpr pid_t kNoAgent = -1;

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

/// This process ends by SIGTERM, unless its program handles it by now.
void deliver_sigterm() noexcept;

/// Decides about the SIGTERMs that were put off. One thread, but for `put_off`.
class SigtermBell {
   public:
    explicit SigtermBell(pid_t agent) noexcept : agent_(agent) {}

    [[nodiscard]] SigtermPutOff put_off() const noexcept { return {agent_, bell_.descriptor()}; }
    [[nodiscard]] SigtermPutOff put_off(int bell) const noexcept { return {agent_, bell}; }

    void watch(net::PollSet& poll) { bell_.watch(poll); }
    /// When `decide` is due even if the bell does not ring.
    [[nodiscard]] Instant deadline() const noexcept { return until_.value_or(Instant::max()); }
    /// Forgets a signal if the agent has asked this worker to leave. If it does not ask within two
    /// seconds, or is gone, the signal ends this process, unless the program handles it.
    void decide(bool agent_is_there, bool has_asked) noexcept;

   private:
    const pid_t agent_;
    net::Wakeup bell_;
    std::optional<Instant> until_;
};

}  // namespace regroup::link
