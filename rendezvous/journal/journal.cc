// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/journal/journal.h"

#include <algorithm>
#include <iterator>
#include <memory>
#include <utility>
#include <variant>

namespace regroup::journal {

using rendezvous::Effects;
using rendezvous::RendezvousCore;

namespace {

/// The policy of the job whose first entry this is; null if no job begins with such an entry.
const rendezvous::JobPolicy* policy_of(const Entry& first) {
    if (!first.event) {
        return nullptr;
    }
    if (const auto* follows = std::get_if<rendezvous::JobFollows>(&*first.event)) {
        return &follows->policy;
    }
    const auto* joined = std::get_if<rendezvous::NodeJoined>(&*first.event);
    return joined == nullptr ? nullptr : &joined->policy;
}

}  // namespace

Effects apply(RendezvousCore& core, const Entry& entry) {
    return entry.event ? core.step(entry.at, *entry.event) : core.advance(entry.at);
}

Result<bool> JobReader::read(const OnEntry& on_entry) {
    const Result<std::vector<Entry>> entries = job_.next();
    if (!entries) {
        return entries.error();
    }
    for (const Entry& entry : *entries) {
        if (!core_) {
            const rendezvous::JobPolicy* policy = policy_of(entry);
            if (policy == nullptr || !validate(*policy)) {
                return Failure(Errc::invalid_argument,
                               "the journal of job " + job_.key.id + " does not begin with a node");
            }
            core_.emplace(*policy, job_.key.began_ms);
        }
        if (entry.at < last_at_) {
            return Failure(Errc::invalid_argument,
                           "the journal of job " + job_.key.id + " goes back in time");
        }
        last_at_ = entry.at;
        last_wall_ms_ = entry.wall_ms;
        on_entry(entry, apply(*core_, entry));
    }
    if (entries->empty() && !core_) {
        return Failure(Errc::invalid_argument, "the journal of job " + job_.key.id + " is empty");
    }
    return !entries->empty();
}

Result<StoredJob> read_all(const KeptJob& job) {
    StoredJob all{job.key, {}, job.ended};
    for (;;) {
        Result<std::vector<Entry>> next = job.next();
        if (!next) {
            return next.error();
        }
        if (next->empty()) {
            return all;
        }
        all.entries.insert(all.entries.end(), std::make_move_iterator(next->begin()),
                           std::make_move_iterator(next->end()));
    }
}

KeptJob kept(StoredJob job) {
    const auto rest = std::make_shared<std::vector<Entry>>(std::move(job.entries));
    return {std::move(job.key), job.ended,
            [rest]() -> Result<std::vector<Entry>> { return std::exchange(*rest, {}); }};
}

std::string numbered(std::size_t number, std::string_view record) {
    return std::to_string(number).append(" ").append(record);
}

Result<std::vector<Entry>> decode_numbered(std::size_t number, std::string_view stored) {
    const std::string begins = std::to_string(number) + " ";
    if (!stored.starts_with(begins)) {
        return Failure(Errc::invalid_argument, "record " + std::to_string(number) +
                                                   " is missing; another one is in its place");
    }
    Result<std::vector<Entry>> entries = decode_record(stored.substr(begins.size()));
    if (!entries) {
        return Failure(Errc::invalid_argument,
                       "record " + std::to_string(number) + ": " + entries.error().detail);
    }
    return entries;
}

Failure cut_back(std::size_t stored, std::size_t found) {
    return Failure(Errc::invalid_argument, std::to_string(stored) + " records were stored, and " +
                                               std::to_string(found) + " are there");
}

bool is_refusal(const rendezvous::Event& event, const Effects& effects) {
    const auto* joined = std::get_if<rendezvous::NodeJoined>(&event);
    if (joined == nullptr || effects.empty() || effects[0].node != joined->node ||
        !std::holds_alternative<rendezvous::Refused>(effects[0].message)) {
        return false;
    }
    return std::all_of(effects.begin() + 1, effects.end(), [](const rendezvous::Send& effect) {
        return std::holds_alternative<rendezvous::Waiting>(effect.message);
    });
}

bool is_only_noted(const rendezvous::Event& event, const Effects& effects) {
    const auto* reported = std::get_if<rendezvous::NodeReported>(&event);
    if (reported == nullptr || reported->report.failure || reported->report.hang ||
        !reported->report.positions.empty()) {
        return false;
    }
    return std::all_of(effects.begin(), effects.end(), [&](const rendezvous::Send& effect) {
        return effect.node == reported->node &&
               (std::holds_alternative<rendezvous::Alive>(effect.message) ||
                std::holds_alternative<rendezvous::Waiting>(effect.message));
    });
}

std::vector<Assigned> assignments_of(const Effects& effects) {
    std::vector<Assigned> assigned;
    for (const rendezvous::Send& effect : effects) {
        if (const auto* assign = std::get_if<rendezvous::Assign>(&effect.message)) {
            assigned.push_back({effect.node, assign->assignment});
        }
    }
    return assigned;
}

}  // namespace regroup::journal
