// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/status.h"

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "launcher/json_fields.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher::top {

using nlohmann::json;

namespace {

std::string formatted(const char* format, double value) {
    char buffer[48];
    std::snprintf(buffer, sizeof buffer, format, value);
    return buffer;
}

NodeRow node_of(const json& object) {
    NodeRow node;
    node.name = text(object, "name");
    node.address = text(object, "address");
    node.place = text(object, "place");
    node.ranks = ranks_of(object);
    if (object.is_object() && object.contains("first_rank")) {
        node.first_rank = number_in(object, "first_rank");
    }
    node.state = text(object, "state");
    node.step = number_in(object, "step");
    node.silent = seconds(object, "silent_s");
    node.detail = text(object, "detail");
    return node;
}

std::optional<LastFailure> failure_of(const json& job) {
    const json& object = field_in(job, "last_failure");
    if (!object.is_object()) {
        return std::nullopt;
    }
    LastFailure failure;
    failure.time = text(object, "time");
    failure.text = text(object, "text");
    const json& output = field_in(object, "last_output");
    if (output.is_string()) {
        failure.last_output = printable_lines(output.get_ref<const std::string&>());
    }
    return failure;
}

std::optional<double> goodput_of(const json& job) {
    const json& time = field_in(field_in(job, "totals"), "time_s");
    const double productive = real_in(time, "productive");
    const double all =
        productive + real_in(time, "recovering") + real_in(time, "planned") + real_in(time, "lost");
    return all > 0 ? std::optional(productive / all) : std::nullopt;
}

/// "snapshot: step 40, 3.2 s ago; step 30 with copies; step 20 in the folder".
std::string snapshots_of(const json& job) {
    const json& snapshots = field_in(job, "snapshots");
    if (!snapshots.is_object()) {
        return "";
    }
    std::string line = "snapshot: step " + std::to_string(number_in(snapshots, "step")) + ", " +
                       format_duration(seconds(snapshots, "age_s")) + " ago";
    for (const auto& [field, where] :
         {std::pair("kept_step", " with copies"), std::pair("written_step", " in the folder")}) {
        if (!field_in(snapshots, field).is_null()) {
            line += "; step " + std::to_string(number_in(snapshots, field)) + where;
        }
    }
    return line;
}

/// "512 samples/s; loss 2.31; step 84 ms: data 2 ms, compute 70 ms; slow: rank 3 (+40 %)".
std::string telemetry_of(const json& job) {
    const json& telemetry = field_in(job, "telemetry");
    std::string line;
    const auto add = [&line](const std::string& part) {
        line += (line.empty() ? "" : "; ") + part;
    };
    if (const double samples = real_in(telemetry, "samples_per_s"); samples > 0) {
        add(rate_text(samples) + " samples/s");
    }
    const json& values = field_in(telemetry, "values");
    for (auto value = values.begin(); values.is_object() && value != values.end(); ++value) {
        if (value->is_number()) {
            add(printable(value.key()) + " " + formatted("%.4g", value->get<double>()));
        }
    }
    const json& step = field_in(telemetry, "step_s");
    std::string parts;
    for (const char* name : {"data", "compute", "communication", "waiting"}) {
        if (const double part = real_in(step, name); part > 0) {
            parts += (parts.empty() ? "" : ", ") + std::string(name) + " " +
                     format_duration(seconds(step, name));
        }
    }
    if (!parts.empty()) {
        add("step: " + parts);
    }
    std::string slow;
    for (const json& rank : field_in(job, "slow_ranks")) {
        slow += (slow.empty() ? "" : ", ") + std::to_string(number_in(rank, "rank")) + " (+" +
                formatted("%.0f", real_in(rank, "excess") * 100) + " %)";
    }
    if (!slow.empty()) {
        add("slow ranks: " + slow);
    }
    return line;
}

void read_rates(const json& object, Job& job) {
    const json& samples = field_in(object, "step_samples");
    std::optional<std::pair<double, double>> last;
    double over = 0;
    for (const json& sample : samples) {
        if (!sample.is_array() || sample.size() != 2 || !sample[0].is_number() ||
            !sample[1].is_number()) {
            continue;
        }
        const std::pair at{sample[0].get<double>(), sample[1].get<double>()};
        if (last && at.first > last->first) {
            // After a loss of steps the count goes back.
            job.rates.push_back(std::max(0.0, at.second - last->second) / (at.first - last->first));
            over += at.first - last->first;
        }
        last = at;
    }
    if (!job.rates.empty()) {
        job.rates_over = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(
            std::clamp(over / static_cast<double>(job.rates.size()), 0.0, 1e9)));
    }
}

Job job_of(const json& object) {
    Job job;
    job.id = text(object, "job");
    const std::string outcome = text(field_in(object, "verdict"), "outcome");
    const std::string state = text(object, "state");
    job.phase = !outcome.empty() ? outcome : state == "stalled" ? state : text(object, "phase");
    job.text = text(object, "text");
    job.journal = text(object, "journal");
    job.round = number_in(object, "round");
    job.ranks = number_in(object, "world_size");
    job.step = number_in(object, "step");
    job.restarts = number_in(object, "restarts");
    job.step_rate = real_in(object, "step_rate");
    job.age = seconds(object, "age_s");
    job.goodput = goodput_of(object);
    for (const json& node : field_in(object, "nodes")) {
        job.nodes.push_back(node_of(node));
        job.members += job.nodes.back().place == "member" ? 1 : 0;
    }
    job.nodes_left_out = number_in(object, "nodes_left_out");
    for (const json& node : field_in(object, "quarantined")) {
        job.quarantined.push_back(text(node, "text"));
    }
    job.budgets = text(object, "budgets_text");
    job.recoveries = text(object, "recoveries_text");
    for (const json& incident : field_in(object, "incidents")) {
        job.incidents.push_back({flag_in(incident, "planned"), text(incident, "text")});
    }
    std::reverse(job.incidents.begin(), job.incidents.end());
    job.failure = failure_of(object);
    job.telemetry = telemetry_of(object);
    job.snapshots = snapshots_of(object);
    read_rates(object, job);
    return job;
}

}  // namespace

std::optional<Status> parse_status(const std::string& json_text) {
    const json object = parse_json(json_text);
    const json& jobs = field_in(object, "jobs");
    if (!jobs.is_array()) {
        return std::nullopt;
    }
    Status status;
    for (const json& job : jobs) {
        status.jobs.push_back(job_of(job));
    }
    status.jobs_left_out = number_in(object, "jobs_left_out");
    return status;
}

std::string step_text(std::uint64_t step) {
    return step == 0 ? "-" : std::to_string(step);
}

std::string rate_text(double rate) {
    return rate <= 0 ? "-" : formatted(rate < 100 ? "%.1f" : "%.0f", rate);
}

std::string goodput_text(const std::optional<double>& goodput) {
    // Rounded down: 100 % says that nothing was lost.
    return goodput ? formatted("%.1f %%", std::floor(*goodput * 1000) / 10) : "-";
}

}  // namespace regroup::launcher::top
