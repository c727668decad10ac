// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/trace_story.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "rendezvous/json/json_fields.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/view/job_totals.h"

namespace regroup::rendezvous {

namespace {

using nlohmann::json;

// Longer than any job; beyond it a double has no microseconds.
constexpr double kSecondsMax = 4e9;

TraceTime time_in(const json& object, std::string_view key) {
    const double seconds = std::clamp(real_in(object, key), 0.0, kSecondsMax);
    return static_cast<TraceTime>(std::llround(seconds * 1e6));
}

std::uint32_t rank_in(const json& object, std::string_view key) {
    return static_cast<std::uint32_t>(number_in(object, key));
}

}  // namespace

TraceTime TracedRound::end_of(std::uint32_t rank, TraceTime now) const {
    const TraceTime whole = end < 0 ? now : end;
    const auto found = dead.find(rank);
    return found == dead.end() ? whole : std::min(whole, found->second);
}

const TracedNode* TracedRound::node_of(std::uint32_t rank) const {
    const auto found = std::find_if(nodes.begin(), nodes.end(), [rank](const TracedNode& node) {
        return rank >= node.first_rank && rank - node.first_rank < node.workers;
    });
    return found == nodes.end() ? nullptr : &*found;
}

std::size_t TraceStory::process_of(const std::string& name) {
    const auto [found, is_new] = indexes_.try_emplace(name, nodes.size());
    if (is_new) {
        nodes.push_back(name);
    }
    return found->second;
}

void TraceStory::read(std::string_view line) {
    const json object = parse_json(line);
    if (!object.is_object() || !object.contains("job_time_s")) {
        return;
    }
    TracedEvent event;
    event.at = std::max(last, time_in(object, "job_time_s"));
    last = event.at;
    event.kind = text_in(object, "event");
    event.round = number_in(object, "round");
    event.step = number_in(object, "step");
    event.node = text_in(object, "node");
    event.first_rank = rank_in(object, "first_rank");
    event.workers = rank_in(object, "workers");
    event.has_rank = object.contains("rank");
    event.rank = rank_in(object, "rank");
    event.text = text_in(object, "text");
    event.planned = flag_in(object, "planned");
    event.cut_short = flag_in(object, "cut_short");
    event.next_round = number_in(object, "next_round");
    if (const auto stages = object.find("stages_s"); stages != object.end()) {
        for (std::size_t i = 0; i + 1 < kStageNames.size(); ++i) {
            event.stages.push_back(time_in(*stages, kStageNames[i]));
        }
    }
    if (!event.node.empty()) {
        process_of(event.node);
    }
    if (event.kind == "assigned") {
        if (!rounds.empty() && rounds.back().end < 0) {
            rounds.back().end = event.at;
        }
        TracedRound& round = rounds.emplace_back();
        round.number = event.round;
        round.cause = event.text;
        round.assigned = event.at;
        std::map<std::string, int> times;  // Nodes on one host may share a name.
        const auto members = object.find("nodes");
        for (const json& member : members == object.end() ? json::array() : *members) {
            std::string name = text_in(member, "node");
            if (const int before = times[name]++; before > 0) {
                name += " (" + std::to_string(before + 1) + ")";
            }
            round.nodes.push_back(
                {process_of(name), rank_in(member, "first_rank"), rank_in(member, "workers")});
        }
    }
    follow(event);
    events.push_back(std::move(event));
}

void TraceStory::follow(const TracedEvent& event) {
    if (rounds.empty() || rounds.back().number != event.round) {
        return;
    }
    TracedRound& round = rounds.back();
    if (event.kind == "running" && round.end < 0) {
        round.running = event.at;  // The first step counts, if the programs tell their steps.
    } else if ((event.kind == "ending" || event.kind == "closed") && round.end < 0) {
        round.end = event.at;
    } else if (event.kind == "failed" && event.has_rank) {
        round.dead.try_emplace(event.rank, event.at);
    } else if (event.kind == "lost" || event.kind == "left") {
        for (std::uint32_t i = 0; i < event.workers; ++i) {
            round.dead.try_emplace(event.first_rank + i, event.at);
        }
    }
}

}  // namespace regroup::rendezvous
