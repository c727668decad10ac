// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/job_totals.h"

#include <algorithm>
#include <chrono>
#include <variant>

#include "rendezvous/base/names.h"

namespace regroup::rendezvous {

std::string_view to_string(JobState state) noexcept {
    return name_in({"waiting", "productive", "recovering", "planned", "lost"}, state);
}

std::string_view to_string(CauseWord word) noexcept {
    return name_in({"failure", "hang", "node_lost", "network", "joined", "drained", "other"}, word);
}

CauseWord cause_word(const Cause& cause) noexcept {
    if (const auto* failed = cause.as<Cause::Failed>()) {
        return failed->failure->kind == FailureKind::hang ? CauseWord::hang : CauseWord::failure;
    }
    if (cause.as<Cause::Hung>() != nullptr) {
        return CauseWord::hang;
    }
    if (cause.as<Cause::Gone>() != nullptr) {
        return CauseWord::node_lost;
    }
    if (cause.as<Cause::LinkBroke>() != nullptr || cause.as<Cause::Abandoned>() != nullptr) {
        return CauseWord::network;
    }
    if (cause.as<Cause::Joined>() != nullptr) {
        return CauseWord::joined;
    }
    if (cause.as<Cause::Leaving>() != nullptr || cause.as<Cause::JobDrain>() != nullptr) {
        return CauseWord::drained;
    }
    return CauseWord::other;
}

std::array<Duration, kStageNames.size()> stages(const Incident& incident) noexcept {
    return {incident.detect,       incident.decide, incident.stop,       incident.join,
            incident.communicator, incident.state,  incident.first_step, incident.total()};
}

void Histogram::add(Duration duration) noexcept {
    const double seconds = to_seconds(duration);
    const auto bucket = std::lower_bound(kLimits.begin(), kLimits.end(), seconds);
    ++counts[static_cast<std::size_t>(bucket - kLimits.begin())];
    ++count;
    sum_s += seconds;
}

}  // namespace regroup::rendezvous
