// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/job_totals.h"

#include <algorithm>
#include <chrono>
#include <variant>

namespace regroup::rendezvous {

std::string_view to_string(JobState state) noexcept {
    switch (state) {
        case JobState::waiting:
            return "waiting";
        case JobState::productive:
            return "productive";
        case JobState::recovering:
            return "recovering";
        case JobState::planned:
            return "planned";
        case JobState::lost:
            return "lost";
    }
    return "unknown";
}

std::string_view to_string(CauseWord word) noexcept {
    switch (word) {
        case CauseWord::failure:
            return "failure";
        case CauseWord::hang:
            return "hang";
        case CauseWord::node_lost:
            return "node_lost";
        case CauseWord::network:
            return "network";
        case CauseWord::joined:
            return "joined";
        case CauseWord::drained:
            return "drained";
        case CauseWord::other:
            return "other";
    }
    return "unknown";
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
