// SPDX-License-Identifier: Apache-2.0
//
// How a RendezvousCore records what people want to know about its job.
#include <utility>

#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

std::string_view to_string(JobEvent::Kind kind) noexcept {
    switch (kind) {
        case JobEvent::Kind::joined:
            return "joined";
        case JobEvent::Kind::left:
            return "left";
        case JobEvent::Kind::lost:
            return "lost";
        case JobEvent::Kind::draining:
            return "draining";
        case JobEvent::Kind::quarantined:
            return "quarantined";
        case JobEvent::Kind::released:
            return "released";
        case JobEvent::Kind::restored:
            return "restored";
        case JobEvent::Kind::assigned:
            return "assigned";
        case JobEvent::Kind::running:
            return "running";
        case JobEvent::Kind::failed:
            return "failed";
        case JobEvent::Kind::hanging:
            return "hanging";
        case JobEvent::Kind::finished:
            return "finished";
        case JobEvent::Kind::changing:
            return "changing";
        case JobEvent::Kind::ending:
            return "ending";
        case JobEvent::Kind::recovered:
            return "recovered";
        case JobEvent::Kind::closed:
            return "closed";
    }
    return "unknown";
}

JobEvent& RendezvousCore::note(Instant now, JobEvent::Kind kind) {
    JobEvent event;
    event.at = now;
    event.kind = kind;
    event.round = round_.id;
    event.step = budget_.step();
    job_events_.push_back(std::move(event));
    return job_events_.back();
}

JobEvent& RendezvousCore::note(Instant now, JobEvent::Kind kind, const NodeId& id,
                               const Node& node) {
    JobEvent& event = note(now, kind);
    event.node = node.offer.name;
    if (const auto found = round_.members.find(id); found != round_.members.end()) {
        event.first_rank = found->second.first_rank;
        event.workers = node.offer.workers;
    }
    return event;
}

void RendezvousCore::note_assigned(Instant now) {
    JobEvent& event = note(now, JobEvent::Kind::assigned);
    event.cause = round_.cause;
    JobEvent::Members members;
    members.reserve(round_.roster.size());
    for (const auto& [id, name] : round_.roster) {
        members.push_back({name, round_.members.at(id).first_rank, nodes_.at(id).offer.workers});
    }
    event.detail = std::move(members);
}

void RendezvousCore::note_quarantined(Instant now, const std::string& name) {
    if (const auto found = failures_.quarantined().find(name);
        found != failures_.quarantined().end()) {
        JobEvent& event = note(now, JobEvent::Kind::quarantined);
        event.node = name;
        event.detail = found->second.why.cause;
    }
}

void RendezvousCore::note_released(Instant now, const std::vector<std::string>& names) {
    for (const std::string& name : names) {
        note(now, JobEvent::Kind::released).node = name;
    }
}

void RendezvousCore::begin_training(Instant now, const std::vector<Incident>& incidents) {
    note(now, JobEvent::Kind::running);
    tell_recovered(now, incidents);
}

void RendezvousCore::tell_recovered(Instant now, const std::vector<Incident>& incidents) {
    for (const Incident& incident : incidents) {
        note(now, JobEvent::Kind::recovered).detail = Boxed<Incident>(incident);
        for (const auto& [id, assignment] : round_.members) {
            effects_.push_back({id, Recovered{incident}});
        }
    }
}

}  // namespace regroup::rendezvous
