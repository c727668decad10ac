// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/job_view.h"

#include <algorithm>
#include <array>
#include <optional>
#include <string_view>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/fields.h"
#include "rendezvous/text/describe.h"
#include "rendezvous/view/event_line.h"
#include "rendezvous/view/json_writer.h"

namespace regroup::rendezvous {

namespace {

using nlohmann::json;

/// `text` as the protocol sends it, unless it is empty.
void put_sentence(JsonWriter& out, std::string_view key, const std::string& text) {
    if (!text.empty()) {
        out.field(key, protocol::sentence(text));
    }
}

std::string text_of(const json& object) {
    return printable_json(json_text(object));
}

// A node has few ranks, but a node may say what it likes.
constexpr std::size_t kRanksMax = 64;

void write_ranks(JsonWriter& out, std::string_view key, const RankSet& ranks) {
    std::size_t count = 0;
    out.key(key);
    out.begin_array();
    for (const auto& [first, size] : ranks.ranges()) {
        for (std::uint32_t i = 0; i < size && count < kRanksMax; ++i, ++count) {
            out.value(std::uint64_t{first} + i);
        }
    }
    out.end_array();
}

void write(JsonWriter& out, const PartialFinish& finish) {
    out.begin_object();
    out.field("finished", finish.finished.size());
    out.field("awaited", finish.awaited.size());
    out.field("since_s", to_seconds(finish.since));
    if (finish.left > Duration::zero()) {
        out.field("left_s", to_seconds(finish.left));
    }
    out.field("text", protocol::sentence(describe(finish)));
    out.end_object();
}

void write(JsonWriter& out, const JobStatus::Node& node) {
    out.begin_object();
    out.field("name", node.name);
    out.field("address", node.address);
    out.field("place", to_string(node.place));
    out.field("state", to_string(node.state));
    out.field("workers", node.workers);
    out.field("elastic", node.elastic);
    out.field("step", node.step);
    out.field("held_step", node.held_step);
    out.field("silent_s", to_seconds(node.silent));
    if (node.place == JobStatus::Membership::member) {
        out.field("group_rank", node.group_rank);
        out.field("first_rank", node.first_rank);
    }
    if (!node.finished.empty()) {
        write_ranks(out, "finished_ranks", node.finished);
    }
    put_sentence(out, "detail", describe_detail(node));
    out.end_object();
}

void write(JsonWriter& out, const JobTotals& totals) {
    const auto by_cause = [&out](std::string_view name,
                                 const std::array<std::uint64_t, kCauseWords>& counts) {
        out.key(name);
        out.begin_object();
        for (std::size_t i = 0; i < kCauseWords; ++i) {
            if (counts[i] > 0) {
                out.field(to_string(static_cast<CauseWord>(i)), counts[i]);
            }
        }
        out.end_object();
    };
    out.begin_object();
    out.key("time_s");
    out.begin_object();
    for (std::size_t i = 0; i < kJobStates; ++i) {
        out.field(to_string(static_cast<JobState>(i)), to_seconds(totals.time[i]));
    }
    out.end_object();
    by_cause("restarts", totals.restarts);
    by_cause("planned", totals.planned);
    out.field("rounds", totals.rounds);
    out.field("nodes_joined", totals.nodes_joined);
    out.field("nodes_left", totals.nodes_left);
    out.field("nodes_lost", totals.nodes_lost);
    out.field("nodes_quarantined", totals.nodes_quarantined);
    out.field("worker_failures", totals.worker_failures);
    out.field("lost_steps", totals.lost_steps);
    out.end_object();
}

void write(JsonWriter& out, const WorkerFailure& failure, std::int64_t wall_ms) {
    out.begin_object();
    out.field("time", utc_time(wall_ms));
    out.field("rank", failure.rank);
    out.field("node", failure.node);
    out.field("host", failure.host);
    out.field("pid", failure.pid);
    out.field("exit_code", shell_exit_code(failure));
    out.field("text", protocol::sentence(describe(failure)));
    put_sentence(out, "last_output", failure.last_output);
    put_sentence(out, "log_file", failure.log_file);
    put_sentence(out, "error_message", failure.error_message);
    out.end_object();
}

/// `parts`: how many parts the times are divided by.
void write_times(JsonWriter& out, std::string_view name, const StepCounters& counters,
                 double parts) {
    out.key(name);
    out.begin_object();
    out.field("data", to_seconds(counters.data) / parts);
    out.field("compute", to_seconds(counters.compute) / parts);
    out.field("communication", to_seconds(counters.communication) / parts);
    out.field("waiting", to_seconds(counters.waiting) / parts);
    out.end_object();
}

void write(JsonWriter& out, const std::vector<SlowRank>& slow_ranks) {
    out.begin_array();
    for (const SlowRank& slow : slow_ranks) {
        out.begin_object();
        out.field("rank", slow.rank);
        out.field("excess", slow.excess);
        out.end_object();
    }
    out.end_array();
}

void write(JsonWriter& out, const JobTelemetry& heard, Instant now) {
    const Telemetry& last = *heard.last();
    const StepCounters& total = heard.total();
    out.begin_object();
    out.field("silent_s", to_seconds(now - heard.heard_at()));
    out.field("steps", total.steps);
    out.field("samples", total.samples);
    write_times(out, "time_s", total, 1);
    json values = json::object();
    for (const ReportedValue& reported : last.values) {
        values[reported.name] = reported.value;
    }
    out.key("values");
    out.json(text_of(values));
    if (const StepCounters& recent = heard.recent(); recent.steps > 0) {
        write_times(out, "step_s", recent, static_cast<double>(recent.steps));
        if (heard.recent_time() > Duration::zero()) {
            out.field("samples_per_s",
                      static_cast<double>(recent.samples) / to_seconds(heard.recent_time()));
        }
    }
    out.end_object();
}

void write(JsonWriter& out, const JobSnapshots& heard, Instant now) {
    const SnapshotFacts& last = *heard.last();
    out.begin_object();
    out.field("step", last.step);
    out.field("age_s", to_seconds(now - heard.since()));
    if (last.kept_step) {
        out.field("kept_step", *last.kept_step);
    }
    if (last.written_step) {
        out.field("written_step", *last.written_step);
    }
    out.field("memory_bytes", last.bytes);
    out.end_object();
}

/// The nodes outside of the round come last, and are those to look at. So members are left out
/// first.
void write_nodes(JsonWriter& out, const std::vector<JobStatus::Node>& all, std::size_t count_max) {
    const std::size_t nodes = std::min(count_max, all.size());
    const auto members = static_cast<std::size_t>(
        std::ranges::count(all, JobStatus::Membership::member, &JobStatus::Node::place));
    const std::size_t outside = std::min(nodes, all.size() - members);
    out.key("nodes");
    out.begin_array();
    for (std::size_t i = 0; i < nodes; ++i) {
        write(out, all[i < nodes - outside ? i : members + (i - (nodes - outside))]);
    }
    out.end_array();
    if (nodes < all.size()) {
        out.field("nodes_left_out", all.size() - nodes);
    }
}

void write_lists(JsonWriter& out, const JobView& named, std::size_t count_max) {
    const JobStatus& status = named.status;
    write_nodes(out, status.nodes, count_max);
    out.key("quarantined");
    out.begin_array();
    for (std::size_t i = 0; i < std::min(count_max, status.quarantined.size()); ++i) {
        const QuarantinedNode& node = status.quarantined[i];
        out.begin_object();
        out.field("name", node.node);
        out.field("reason", protocol::sentence(describe(node.why)));
        out.field("left_s", to_seconds(node.left));
        out.field("text", protocol::sentence(describe(node)));
        out.end_object();
    }
    out.end_array();
    out.key("budgets");
    out.begin_array();
    for (const JobStatus::Budget& budget : status.budgets) {
        out.begin_object();
        out.field("what", to_string(budget.kind));
        out.field("used", budget.used);
        if (budget.allowed) {
            out.field("allowed", *budget.allowed);
        }
        out.end_object();
    }
    out.end_array();
    out.key("incidents");
    out.begin_array();
    const std::size_t incidents = std::min(count_max, status.incidents.size());
    for (std::size_t i = status.incidents.size() - incidents; i < status.incidents.size(); ++i) {
        json incident = json::object();
        protocol::write(incident, status.incidents[i]);
        incident["text"] = protocol::sentence(describe_briefly(status.incidents[i]));
        out.json(text_of(incident));
    }
    out.end_array();
    out.key("step_samples");
    out.begin_array();
    const std::size_t every =
        std::max<std::size_t>(1, (named.samples.size() + count_max - 1) / count_max);
    for (std::size_t i = 0; i < named.samples.size(); i += every) {
        out.begin_array();
        out.value(to_seconds(named.samples[i].at.time_since_epoch()));
        out.value(named.samples[i].step);
        out.end_array();
    }
    out.end_array();
}

/// `count_max`: rows of each list.
void write(JsonWriter& out, const JobView& named, std::size_t count_max) {
    const JobStatus& status = named.status;
    const Goodput& goodput = status.goodput;
    out.begin_object();
    out.field("job", named.job);
    out.field("phase", to_string(status.phase));
    out.field("state", state_word(named));
    out.field("began", utc_time(named.began_ms));
    out.field("time", utc_time(named.now_ms));
    out.field("age_s", to_seconds(named.now.time_since_epoch()));
    out.field("step_rate", named.step_rate);
    if (named.last_step) {
        out.field("last_step_s", to_seconds(*named.last_step));
    }
    out.field("last_event", named.last_event);
    out.key("totals");
    write(out, named.totals);
    const std::string still =
        named.stalled ? "; no step for " + format_duration(*named.stalled) : "";
    out.field("text", protocol::sentence(describe(status.situation) + still));
    out.field("round", number(status.round));
    out.field("world_size", status.world_size);
    out.field("elastic", status.elastic);
    out.field("step", status.step);
    out.field("lasted_s", to_seconds(goodput.lasted));
    out.field("lost_s", to_seconds(goodput.lost));
    out.field("lost_at_end_s", to_seconds(goodput.lost_at_end));
    out.field("incidents_count", goodput.count);
    out.field("incidents_planned", goodput.planned);
    out.field("incidents_cut_short", goodput.cut_short);
    out.field("incidents_until_start", goodput.until_start);
    out.field("lost_steps", goodput.lost_steps);
    out.field("lost_at_least", goodput.lost_at_least);
    put_sentence(out, "recoveries_text", describe(goodput));
    put_sentence(out, "budgets_text", describe(status.budgets));
    out.field("restarts", status.restarts);
    if (status.situation.partial_finish.is_known()) {
        out.key("partial_finish");
        write(out, status.situation.partial_finish);
    }
    put_sentence(out, "journal", named.journal);
    write_lists(out, named, count_max);
    if (named.last_loss.failure) {
        out.key("last_failure");
        write(out, *named.last_loss.failure, named.last_loss.failure_ms);
    }
    if (named.telemetry.last()) {
        out.key("telemetry");
        write(out, named.telemetry, named.now);
    }
    if (!named.slow_ranks.empty()) {
        out.key("slow_ranks");
        write(out, named.slow_ranks);
    }
    if (named.snapshots.last()) {
        out.key("snapshots");
        write(out, named.snapshots, named.now);
    }
    if (status.verdict) {
        json verdict;
        protocol::write(verdict, *status.verdict);
        out.key("verdict");
        out.json(text_of(verdict));
    }
    out.end_object();
}

// A row of a node is hardly ever shorter.
constexpr std::size_t kRowBytesMin = 160;
// The object around the jobs.
constexpr std::size_t kFrameBytes = 64;

/// The first `jobs_max` jobs, or nothing if they take more than `bytes_max`: then `count_max` is
/// smaller, and may fit. Takes no longer than so many bytes and one job do.
std::optional<std::string> texts_of(const std::vector<JobView>& jobs, std::size_t jobs_max,
                                    std::size_t& count_max, std::size_t bytes_max) {
    std::string text;
    JsonWriter out(text);
    out.begin_object();
    out.field("version", kViewVersion);
    out.key("jobs");
    out.begin_array();
    for (std::size_t i = 0; i < jobs_max; ++i) {
        write(out, jobs[i], count_max);
        if (text.size() + kFrameBytes > bytes_max) {
            // Rows are about equally long. The rest is not known yet.
            const bool is_all = i + 1 == jobs_max;
            const std::size_t fits =
                count_max * (bytes_max / 64) / (text.size() / 64 + 1) * (is_all ? 49 : 38) / 50;
            count_max = std::clamp<std::size_t>(fits, 1, std::max<std::size_t>(2, count_max) - 1);
            return std::nullopt;
        }
    }
    out.end_array();
    if (jobs_max < jobs.size()) {
        out.field("jobs_left_out", jobs.size() - jobs_max);
    }
    out.end_object();
    return text;
}

/// So many rows of each job may fit.
std::size_t rows_at_most(const std::vector<JobView>& jobs, std::size_t bytes_max) {
    std::size_t longest = StepSeries::kSamplesMax;
    for (const JobView& job : jobs) {
        longest = std::max(longest, job.status.nodes.size());
    }
    const auto fits = [&](std::size_t rows) {
        std::size_t all = 0;
        for (const JobView& job : jobs) {
            all += std::min(rows, job.status.nodes.size());
        }
        return all * kRowBytesMin <= bytes_max;
    };
    while (longest > 1 && !fits(longest)) {
        longest -= (longest + 7) / 8;
    }
    return longest;
}

}  // namespace

std::string_view state_word(const JobView& job) noexcept {
    return job.status.verdict ? to_string(job.status.verdict->outcome)
           : job.stalled      ? kStalled
                              : to_string(job.state);
}

std::string jobs_json(const std::vector<JobView>& jobs, std::size_t bytes_max) {
    // First as many jobs as fit, then as many rows of each.
    std::size_t jobs_max = 0;
    std::string least;
    JsonWriter out(least);
    for (; jobs_max < jobs.size(); ++jobs_max) {
        write(out, jobs[jobs_max], 1);
        if (least.size() + 2 * kFrameBytes > bytes_max) {
            break;
        }
    }
    std::size_t count_max = jobs_max < jobs.size() ? 1 : rows_at_most(jobs, bytes_max);
    for (;;) {
        const bool is_least = count_max <= 1;
        if (auto text = texts_of(jobs, jobs_max, count_max, bytes_max); text || is_least) {
            return text.value_or(R"({"version":)" + std::to_string(kViewVersion) +
                                 R"(,"jobs":[]})");
        }
    }
}

}  // namespace regroup::rendezvous
