// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/hang_facts.h"

#include <algorithm>
#include <array>
#include <iterator>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/explain/plain_data.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::agent {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

constexpr int kFactsVersion = 1;
constexpr std::size_t kGroupsKept = 256;  // Of a rank.

// In the order of ProcessState.
constexpr std::array<std::string_view, 5> kStates{"unknown", "running", "stopped", "gone",
                                                  "finished"};

ProcessState state_named(const std::string& name) {
    const auto found = std::ranges::find(kStates, name);
    return found == kStates.end() ? ProcessState::unknown
                                  : static_cast<ProcessState>(found - kStates.begin());
}

ordered_json line_of(const RecordedGroup& group) {
    ordered_json line;
    line["backend"] = group.backend;
    line["name"] = group.name;
    line["id"] = group.id;
    line["operations"] = ordered_json::array();
    for (const RecordedOperation& operation : group.operations) {
        ordered_json each;
        each["number"] = operation.number;
        each["name"] = operation.name;
        each["type"] = operation.type;
        if (operation.elements) {
            each["elements"] = *operation.elements;
        }
        each["started"] = operation.started;
        each["completed"] = operation.completed;
        line["operations"].push_back(std::move(each));
    }
    return line;
}

ordered_json line_of(const RankFacts& rank) {
    ordered_json line;
    line["rank"] = rank.rank;
    line["state"] = to_string(rank.state);
    line["pid"] = rank.pid;
    if (rank.step) {
        line["step"] = *rank.step;
    }
    if (rank.operations) {
        line["operations"] = *rank.operations;
    }
    line["doing"] = rank.doing;
    line["waiting"] = rank.waiting;
    line["silent_ms"] = rank.silent_ms;
    for (const FlightRecord& record : rank.records) {
        for (const RecordedGroup& group : record.groups) {
            line["groups"].push_back(line_of(group));
        }
    }
    return line;
}

RecordedOperation operation_in(const json& line) {
    RecordedOperation operation;
    operation.number = line.at("number").get<std::uint64_t>();
    operation.name = line.at("name").get<std::string>();
    operation.type = line.value("type", std::string());
    if (line.contains("elements")) {
        operation.elements = line.at("elements").get<std::uint64_t>();
    }
    operation.started = line.value("started", false);
    operation.completed = line.value("completed", false);
    return operation;
}

RecordedGroup group_in(const json& line) {
    RecordedGroup group;
    group.backend = line.at("backend").get<std::string>();
    group.name = line.at("name").get<std::string>();
    group.id = line.at("id").get<std::string>();
    const json& operations = line.at("operations");
    for (std::size_t i = 0; i < std::min(operations.size(), kOperationsKept); ++i) {
        group.operations.push_back(operation_in(operations[i]));
    }
    return group;
}

RankFacts rank_in(const json& line) {
    RankFacts rank;
    rank.rank = line.at("rank").get<std::uint32_t>();
    rank.state = state_named(line.at("state").get<std::string>());
    rank.pid = line.value("pid", std::int64_t{0});
    if (line.contains("step")) {
        rank.step = line.at("step").get<std::uint64_t>();
    }
    if (line.contains("operations")) {
        rank.operations = line.at("operations").get<std::uint64_t>();
    }
    rank.doing = line.value("doing", std::string());
    rank.waiting = line.value("waiting", false);
    rank.silent_ms = line.value("silent_ms", std::uint64_t{0});
    if (line.contains("groups")) {
        FlightRecord record{.recorder = Recorder::agent};
        const json& groups = line.at("groups");
        for (std::size_t i = 0; i < std::min(groups.size(), kGroupsKept); ++i) {
            record.groups.push_back(group_in(groups[i]));
        }
        rank.records.push_back(std::move(record));
    }
    return rank;
}

Failure odd_facts(const json::exception& error) {
    return invalid_argument("it is not what an agent writes: " + std::string(error.what()));
}

}  // namespace

std::string_view to_string(ProcessState state) noexcept {
    return kStates.at(static_cast<std::size_t>(state));
}

std::string write_node_facts(const NodeFacts& facts) {
    ordered_json text;
    text["version"] = kFactsVersion;
    text["job"] = facts.job;
    text["round"] = facts.round;
    text["reason"] = facts.reason;
    text["world_size"] = facts.world_size;
    text["node"] = facts.node;
    text["ranks"] = ordered_json::array();
    for (const RankFacts& rank : facts.ranks) {
        text["ranks"].push_back(line_of(rank));
    }
    return printable_json(json_text(text)) + "\n";
}

Result<NodeFacts> read_node_facts(std::string_view text) {
    try {
        NodeFacts facts;
        std::optional<Failure> odd;  // Told only if it is of this release.
        const auto take = [&](const json& rank) -> Result<void> {
            if (facts.ranks.size() == kRanksMax) {
                return invalid_argument("it has too many ranks");
            }
            try {
                facts.ranks.push_back(rank_in(rank));
            } catch (const json::exception& error) {
                odd = odd_facts(error);
            }
            return {};
        };
        const Result<json> read = read_plain_data(text, "ranks", take);
        if (!read) {
            return read.error();
        }
        const json& line = *read;
        if (line.at("version").get<int>() != kFactsVersion) {
            return Failure(Errc::invalid_argument,
                           "it is of another release of regroup; explain it with that release");
        }
        if (odd) {
            return *odd;
        }
        facts.job = line.at("job").get<std::string>();
        facts.round = line.at("round").get<std::uint64_t>();
        facts.reason = line.at("reason").get<std::string>();
        facts.world_size = line.at("world_size").get<std::uint32_t>();
        facts.node = line.at("node").get<std::string>();
        const bool fits = facts.world_size <= kRanksMax &&
                          std::ranges::all_of(facts.ranks, [&](const RankFacts& rank) {
                              return rank.rank < facts.world_size;
                          });
        if (!fits) {
            return Failure(Errc::invalid_argument, "it has ranks beyond its world size");
        }
        return facts;
    } catch (const json::exception& error) {
        return odd_facts(error);
    }
}

const RankFacts* find_rank(const HangFacts& facts, std::uint32_t rank) {
    const auto place = std::ranges::lower_bound(facts.ranks, rank, {}, &RankFacts::rank);
    return place != facts.ranks.end() && place->rank == rank ? &*place : nullptr;
}

RankFacts& facts_of(HangFacts& facts, std::uint32_t rank) {
    const auto place = std::ranges::lower_bound(facts.ranks, rank, {}, &RankFacts::rank);
    if (place != facts.ranks.end() && place->rank == rank) {
        return *place;
    }
    RankFacts added;
    added.rank = rank;
    return *facts.ranks.insert(place, std::move(added));
}

void add(HangFacts& facts, const NodeFacts& node) {
    if (facts.world_size == 0) {
        facts.job = node.job;
        facts.round = node.round;
        facts.reason = node.reason;
    }
    for (std::uint32_t rank = facts.world_size; rank < node.world_size; ++rank) {
        static_cast<void>(facts_of(facts, rank));
    }
    facts.world_size = std::max(facts.world_size, node.world_size);
    for (const RankFacts& said : node.ranks) {
        RankFacts& rank = facts_of(facts, said.rank);
        RankFacts replaced = said;
        replaced.node = node.node;
        replaced.frames = std::move(rank.frames);
        replaced.records.insert(replaced.records.end(),
                                std::make_move_iterator(rank.records.begin()),
                                std::make_move_iterator(rank.records.end()));
        rank = std::move(replaced);
    }
}

}  // namespace regroup::agent
