// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/job_view.h"

#include <algorithm>
#include <optional>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/parts.h"
#include "rendezvous/text/describe.h"
#include "rendezvous/view/event_line.h"

namespace regroup::rendezvous {

using nlohmann::json;

namespace {

double seconds(Duration duration) {
    return std::chrono::duration<double>(duration).count();
}

json to_json(const JobStatus::Node& node) {
    json object = {{"name", node.name},
                   {"address", node.address},
                   {"place", to_string(node.place)},
                   {"state", to_string(node.state)},
                   {"workers", node.workers},
                   {"elastic", node.elastic},
                   {"step", node.step},
                   {"held_step", node.held_step},
                   {"silent_s", seconds(node.silent)}};
    if (node.place == JobStatus::Place::member) {
        object["group_rank"] = node.group_rank;
        object["first_rank"] = node.first_rank;
    }
    protocol::put_sentence(object, "detail", describe_detail(node));
    return object;
}

json to_json(const JobTotals& totals) {
    json time = json::object();
    for (std::size_t i = 0; i < kJobStates; ++i) {
        time[std::string(to_string(static_cast<JobState>(i)))] = seconds(totals.time[i]);
    }
    const auto by_cause = [](const std::array<std::uint64_t, kCauseWords>& counts) {
        json object = json::object();
        for (std::size_t i = 0; i < kCauseWords; ++i) {
            if (counts[i] > 0) {
                object[std::string(to_string(static_cast<CauseWord>(i)))] = counts[i];
            }
        }
        return object;
    };
    return {{"time_s", std::move(time)},
            {"restarts", by_cause(totals.restarts)},
            {"planned", by_cause(totals.planned)},
            {"rounds", totals.rounds},
            {"nodes_joined", totals.nodes_joined},
            {"nodes_left", totals.nodes_left},
            {"nodes_lost", totals.nodes_lost},
            {"nodes_quarantined", totals.nodes_quarantined},
            {"worker_failures", totals.worker_failures},
            {"lost_steps", totals.lost_steps}};
}

json to_json(const WorkerFailure& failure, std::int64_t wall_ms) {
    json object = {{"time", utc_time(wall_ms)},
                   {"rank", failure.rank},
                   {"node", failure.node},
                   {"host", failure.host},
                   {"pid", failure.pid},
                   {"exit_code", shell_exit_code(failure)},
                   {"text", protocol::sentence(describe(failure))}};
    protocol::put_sentence(object, "last_output", failure.last_output);
    protocol::put_sentence(object, "log_file", failure.log_file);
    protocol::put_sentence(object, "error_message", failure.error_message);
    return object;
}

/// `parts`: how many parts the times are divided by.
json times(const StepCounters& counters, double parts) {
    return {{"data", seconds(counters.data) / parts},
            {"compute", seconds(counters.compute) / parts},
            {"communication", seconds(counters.communication) / parts},
            {"waiting", seconds(counters.waiting) / parts}};
}

json to_json(const JobTelemetry& heard, Instant now) {
    const Telemetry& last = *heard.last();
    const StepCounters& total = heard.total();
    json object = {{"silent_s", seconds(now - heard.heard_at())},
                   {"steps", total.steps},
                   {"samples", total.samples},
                   {"time_s", times(total, 1)},
                   {"values", json::object()},
                   {"slow_ranks", json::array()}};
    for (const ReportedValue& reported : last.values) {
        object["values"][reported.name] = reported.value;
    }
    for (const SlowRank& slow : last.slow_ranks) {
        object["slow_ranks"].push_back({{"rank", slow.rank}, {"excess", slow.excess}});
    }
    if (const StepCounters& recent = heard.recent(); recent.steps > 0) {
        object["step_s"] = times(recent, static_cast<double>(recent.steps));
        if (heard.recent_time() > Duration::zero()) {
            object["samples_per_s"] =
                static_cast<double>(recent.samples) / seconds(heard.recent_time());
        }
    }
    return object;
}

json to_json(const JobView& named, std::size_t count_max) {
    const JobStatus& status = named.status;
    const Goodput& goodput = status.goodput;
    json object = {{"job", named.job},
                   {"phase", to_string(status.phase)},
                   {"state", to_string(named.state)},
                   {"began", utc_time(named.began_ms)},
                   {"time", utc_time(named.now_ms)},
                   {"age_s", seconds(named.now.time_since_epoch())},
                   {"step_rate", named.step_rate},
                   {"last_event", named.last_event},
                   {"totals", to_json(named.totals)},
                   {"text", protocol::sentence(describe(status.situation))},
                   {"round", number(status.round)},
                   {"world_size", status.world_size},
                   {"elastic", status.elastic},
                   {"step", status.step},
                   {"lasted_s", seconds(goodput.lasted)},
                   {"lost_s", seconds(goodput.lost)},
                   {"lost_at_end_s", seconds(goodput.lost_at_end)},
                   {"incidents_count", goodput.count},
                   {"incidents_planned", goodput.planned},
                   {"incidents_cut_short", goodput.cut_short},
                   {"incidents_until_start", goodput.until_start},
                   {"lost_steps", goodput.lost_steps},
                   {"lost_at_least", goodput.lost_at_least},
                   {"restarts", status.restarts},
                   {"nodes", json::array()},
                   {"quarantined", json::array()},
                   {"budgets", json::array()},
                   {"incidents", json::array()}};
    protocol::put_sentence(object, "journal", named.journal);
    // The nodes outside of the round come last, and are those to look at. So members are left out
    // first.
    const std::size_t nodes = std::min(count_max, status.nodes.size());
    const auto members = static_cast<std::size_t>(
        std::ranges::count(status.nodes, JobStatus::Place::member, &JobStatus::Node::place));
    const std::size_t outside = std::min(nodes, status.nodes.size() - members);
    for (std::size_t i = 0; i < nodes; ++i) {
        const std::size_t at = i < nodes - outside ? i : members + (i - (nodes - outside));
        object["nodes"].push_back(to_json(status.nodes[at]));
    }
    for (std::size_t i = 0; i < std::min(count_max, status.quarantined.size()); ++i) {
        const QuarantinedNode& node = status.quarantined[i];
        object["quarantined"].push_back({{"name", node.node},
                                         {"reason", protocol::sentence(describe(node.why))},
                                         {"left_s", seconds(node.left)}});
    }
    for (const JobStatus::Budget& budget : status.budgets) {
        object["budgets"].push_back({{"what", to_string(budget.kind)}, {"used", budget.used}});
        if (budget.allowed) {
            object["budgets"].back()["allowed"] = *budget.allowed;
        }
    }
    const std::size_t incidents = std::min(count_max, status.incidents.size());
    for (std::size_t i = status.incidents.size() - incidents; i < status.incidents.size(); ++i) {
        json incident = json::object();
        protocol::write(incident, status.incidents[i]);
        object["incidents"].push_back(std::move(incident));
    }
    json& samples = object["step_samples"] = json::array();
    const std::size_t every =
        std::max<std::size_t>(1, (named.samples.size() + count_max - 1) / count_max);
    for (std::size_t i = 0; i < named.samples.size(); i += every) {
        const StepSample& sample = named.samples[i];
        samples.push_back({seconds(sample.at.time_since_epoch()), sample.step});
    }
    if (named.last_failure) {
        object["last_failure"] = to_json(*named.last_failure, named.last_failure_ms);
    }
    if (named.telemetry.last()) {
        object["telemetry"] = to_json(named.telemetry, named.now);
    }
    if (nodes < status.nodes.size()) {
        object["nodes_left_out"] = status.nodes.size() - nodes;
    }
    if (status.verdict) {
        protocol::write(object["verdict"], *status.verdict);
    }
    return object;
}

// A row of a node, of an incident or of a quarantined node is never shorter.
constexpr std::size_t kRowBytesMin = 32;
// The object around the jobs.
constexpr std::size_t kFrameBytes = 64;

std::string text_of(const json& object) {
    return object.dump(-1, ' ', false, json::error_handler_t::replace);
}

/// The first `jobs_max` jobs, or nothing if they take more than `bytes_max`. Takes no longer than
/// so many bytes do.
std::optional<std::string> texts_of(const std::vector<JobView>& jobs, std::size_t jobs_max,
                                    std::size_t count_max, std::size_t bytes_max) {
    std::string text = R"({"version":)" + std::to_string(kViewVersion) + R"(,"jobs":[)";
    for (std::size_t i = 0; i < jobs_max; ++i) {
        text += (i > 0 ? "," : "") + text_of(to_json(jobs[i], count_max));
        if (text.size() + kFrameBytes > bytes_max) {
            return std::nullopt;
        }
    }
    text += "]";
    if (jobs_max < jobs.size()) {
        text += R"(,"jobs_left_out":)" + std::to_string(jobs.size() - jobs_max);
    }
    return text + "}";
}

}  // namespace

std::string jobs_json(const std::vector<JobView>& jobs, std::size_t bytes_max) {
    // First as many jobs as fit, then as many rows of each.
    std::size_t jobs_max = 0;
    for (std::size_t bytes = kFrameBytes; jobs_max < jobs.size(); ++jobs_max) {
        bytes += text_of(to_json(jobs[jobs_max], 1)).size() + 1;
        if (bytes + kFrameBytes > bytes_max) {
            break;
        }
    }
    std::size_t count_max =
        jobs_max < jobs.size() ? 1 : std::max<std::size_t>(1, bytes_max / kRowBytesMin);
    for (;; count_max /= 2) {
        if (auto text = texts_of(jobs, jobs_max, count_max, bytes_max); text || count_max <= 1) {
            return text.value_or(R"({"version":)" + std::to_string(kViewVersion) +
                                 R"(,"jobs":[]})");
        }
    }
}

}  // namespace regroup::rendezvous
