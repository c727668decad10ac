// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

#include "rendezvous/base/clock.h"
#include "rendezvous/server/log_limiter.h"
#include "rendezvous/server/session.h"
#include "rendezvous/view/daemon_counters.h"

namespace regroup::rendezvous {

/// The log lines that peers can cause at will, and the count of their refusals. `kind` is one of a
/// few words.
class PeerLog {
   public:
    /// Both outlive it.
    PeerLog(const Clock& clock, DaemonCounters& counters, LogLimiter::Write write)
        : clock_(clock), counters_(counters), lines_(std::move(write)) {}

    void say(const std::string& kind, const std::string& address, const std::string& line) {
        lines_.log(kind, address, line, clock_.now());
    }
    /// The same for a refusal.
    void say_refused(const std::string& kind, const std::string& address, const std::string& line);
    void say_refused(const std::string& kind, const Session& session, const std::string& line) {
        say_refused(kind, session.peer.address, line);
    }
    /// Tells the session why it is refused, as its last message.
    void refuse(Session& session, Errc code, const std::string& reason);
    /// To be called about once a second.
    void sweep() { lines_.sweep(clock_.now()); }

   private:
    const Clock& clock_;
    DaemonCounters& counters_;
    LogLimiter lines_;
};

}  // namespace regroup::rendezvous
