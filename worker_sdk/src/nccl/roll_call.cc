// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/roll_call.h"

#include <algorithm>

namespace regroup::nccl {

void RollCall::tell(std::uint32_t scope, Standing standing, Instant now) {
    standing.version = ++version_;
    scopes_[scope].told_at = now;
    ring_.announce({.kind = Notice::Kind::standing,
                    .origin = rank_,
                    .about = scope,
                    .text = text_of(standing)});
}

void RollCall::hear(const Notice& notice, const Standing& own, Instant now) {
    Scope& scope = scopes_[notice.about];
    scope.standings.note(notice.origin, standing_of(notice.text).value(), now);
    if (now - scope.told_at >= Standings::kAnswerInterval) {
        tell(notice.about, own, now);
    }
}

std::optional<GroupFailure> RollCall::explain(const GroupFailure& failure,
                                              const GroupIdentity& identity,
                                              const std::map<std::uint32_t, Instant>& departed,
                                              Instant asked_at, Instant now) {
    std::vector<std::uint32_t> others;
    std::ranges::copy_if(identity.members, std::back_inserter(others), [&](std::uint32_t member) {
        return member != rank_ && !departed.contains(member);
    });
    const Standings& standings = scopes_[identity.scope].standings;
    if (!standings.have_answered(others, asked_at) &&
        now < after(asked_at, Standings::kAnswerLimit)) {
        return std::nullopt;
    }
    return standings.explain(failure, asked_at, others,
                             [&](std::uint32_t member) { return identity.name_of(member); });
}

}  // namespace regroup::nccl
