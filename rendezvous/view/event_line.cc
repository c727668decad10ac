// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/event_line.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <utility>
#include <variant>

#include <nlohmann/json.hpp>

#include "rendezvous/base/names.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/time_text.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/fields.h"
#include "rendezvous/text/describe.h"
#include "rendezvous/view/job_history.h"

namespace regroup::rendezvous {

namespace {

using nlohmann::ordered_json;

// The other fields and their sentences take less than the rest of a line.
constexpr std::size_t kNodesBytesMax = std::size_t{56} << 10;

std::string text_of(const ordered_json& value) {
    return printable_json(json_text(value));
}

std::string_view word(Departure::Kind kind) {
    return name_in(
        {"left", "killed", "silent", "disconnected", "absent", "launcher_ended", "stuck"}, kind);
}

void write(ordered_json& line, const Cause& cause) {
    line["cause"] = to_string(cause_word(cause));
    line["text"] = protocol::sentence(describe(cause));
}

// The rank that the others wait for, if that is known already.
void write_culprit(ordered_json& line, const JobEvent::Detail& detail) {
    const auto* const cause = std::get_if<Cause>(&detail);
    const auto* const hung = cause == nullptr ? nullptr : cause->as<Cause::Hung>();
    if (hung != nullptr && hung->culprit) {
        line["rank"] = hung->culprit->rank;
    }
}

struct Details {
    ordered_json& line;
    bool has_nodes = true;

    void operator()(std::monostate /*none*/) const {}
    void operator()(const Cause& cause) const { write(line, cause); }
    void operator()(const Departure& departure) const {
        line["cause"] = word(departure.kind);
        if (!departure.reason.empty()) {
            line["text"] = protocol::sentence(departure.reason);
        }
    }
    void operator()(const Boxed<WorkerFailure>& failure) const {
        line["cause"] = to_string(failure->kind);
        line["rank"] = failure->rank;
        line["local_rank"] = failure->local_rank;
        line["host"] = failure->host;
        line["pid"] = failure->pid;
        line["exit_code"] = shell_exit_code(*failure);
        if (failure->signal != 0) {
            line["signal"] = signal_name(failure->signal);
        }
        if (!failure->log_file.empty()) {
            line["log_file"] = failure->log_file;
        }
        line["text"] = protocol::sentence(describe(*failure));
    }
    void operator()(const Boxed<Incident>& incident) const {
        line["planned"] = incident->planned;
        line["cut_short"] = incident->cut_short;
        line["next_round"] = number(incident->next_round);
        write(line, incident->cause);
        ordered_json& parts = line["stages_s"] = ordered_json::object();
        const auto durations = stages(*incident);
        for (std::size_t i = 0; i < durations.size(); ++i) {
            parts[std::string(kStageNames[i])] = to_seconds(durations[i]);
        }
        line["lost_steps"] = incident->lost_steps;
        line["summary"] = protocol::sentence(describe_briefly(*incident));
    }
    void operator()(const Boxed<Verdict>& verdict) const {
        line["outcome"] = to_string(verdict->outcome);
        line["exit_code"] = verdict->exit_code;
        line["restarts"] = verdict->restarts;
        line["author"] = describe(verdict->author);
        const std::string reason = describe(verdict->reason);
        line["text"] = protocol::sentence(reason);
        line["summary"] =
            protocol::sentence(std::string(to_string(verdict->outcome)) + ": " + reason);
    }
    void operator()(const SlowRank& slow) const {
        line["rank"] = slow.rank;
        line["excess"] = slow.excess;
        line["text"] = protocol::sentence(describe(slow, line.value("node", "")));
    }
    void operator()(const PartialFinish& finish) const {
        line["finished"] = finish.finished.size();
        line["awaited"] = finish.awaited.size();
        line["text"] = protocol::sentence(describe(finish));
    }
    void operator()(const JobEvent::Release& release) const {
        line["author"] = release.author;
        line["text"] = protocol::sentence("released by " + release.author +
                                          (release.reason.empty() ? "" : ": " + release.reason));
    }
    void operator()(const JobEvent::Members& members) const {
        std::uint64_t ranks = 0;
        std::size_t bytes = 0;
        ordered_json nodes = ordered_json::array();
        for (const JobEvent::Member& member : members) {
            ranks += member.workers;
            if (!has_nodes) {
                continue;
            }
            ordered_json node = {{"node", member.node},
                                 {"first_rank", member.first_rank},
                                 {"workers", member.workers}};
            bytes += text_of(node).size() + 1;
            if (bytes <= kNodesBytesMax) {
                nodes.push_back(std::move(node));
            }
        }
        line["summary"] =
            protocol::sentence(counted(members.size(), "node") + ", " + counted(ranks, "rank") +
                               ": " + line["text"].get<std::string>());
        line["world_size"] = ranks;
        line["group_world_size"] = members.size();
        if (!has_nodes) {
            return;
        }
        if (nodes.size() < members.size()) {
            line["nodes_left_out"] = members.size() - nodes.size();
        }
        line["nodes"] = std::move(nodes);
    }
};

}  // namespace

std::string utc_time(std::int64_t wall_ms) {
    const auto at = std::chrono::milliseconds(wall_ms);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(at);
    std::array<char, 8> rest{};
    std::snprintf(rest.data(), rest.size(), ".%03dZ", static_cast<int>((at - seconds).count()));
    const std::string text = universal_time_text(seconds.count());
    return text.substr(0, text.size() - 1) + rest.data();
}

namespace {

std::string line_of(const std::string& job, const RecordedEvent& entry, bool has_nodes) {
    const JobEvent& event = entry.event;
    ordered_json line = {{"time", utc_time(entry.wall_ms)},
                         {"source", "daemon"},
                         {"job", job},
                         {"number", entry.number},
                         {"job_time_s", to_seconds(event.at.time_since_epoch())},
                         {"event", to_string(event.kind)},
                         {"round", number(event.round)},
                         {"step", event.step}};
    if (!event.node.empty()) {
        line["node"] = event.node;
    }
    if (event.workers > 0) {
        line["first_rank"] = event.first_rank;
        line["workers"] = event.workers;
    }
    if (event.kind == JobEvent::Kind::assigned) {
        write(line, event.cause);
    }
    if (event.kind == JobEvent::Kind::restored) {
        line["text"] =
            "the daemon was restarted, or another one took over; it goes on with the job from its "
            "journal";
    }
    if (event.kind == JobEvent::Kind::hanging) {
        write_culprit(line, event.detail);
    }
    std::visit(Details{line, has_nodes}, event.detail);
    return text_of(line);
}

}  // namespace

std::string event_line(const std::string& job, const RecordedEvent& entry) {
    return line_of(job, entry, true);
}

std::string brief_event_line(const std::string& job, const RecordedEvent& entry) {
    return line_of(job, entry, false);
}

}  // namespace regroup::rendezvous
