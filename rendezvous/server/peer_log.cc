// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/peer_log.h"

#include <algorithm>

#include "rendezvous/base/text.h"

namespace regroup::rendezvous {

void PeerLog::say_refused(const std::string& kind, const std::string& address,
                          const std::string& line) {
    std::string label = lower(kind);
    std::ranges::replace(label, ' ', '_');
    ++counters_.refusals[label];
    say(kind, address, line);
}

void PeerLog::refuse(Session& session, Errc code, const std::string& reason) {
    say_refused("refusal", session,
                (session.membership ? "job " + session.membership->job + ": " : "") + "refused " +
                    session.peer.text + ": " + reason);
    session.send_last(Refused{code, reason});
}

}  // namespace regroup::rendezvous
