// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/view/metrics_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstddef>
#include <optional>
#include <string_view>

namespace regroup::rendezvous {

namespace {

using Type = MetricsWriter::Type;

// Their values are 0, 1, ... without a gap.
constexpr std::array kPlaces{JobStatus::Membership::member,  JobStatus::Membership::waiting,
                             JobStatus::Membership::standby, JobStatus::Membership::quarantined,
                             JobStatus::Membership::leaving, JobStatus::Membership::away};
constexpr std::array kPhases{Phase::forming, Phase::training, Phase::changing, Phase::ending,
                             Phase::closed};
constexpr std::array kOutcomes{Outcome::succeeded, Outcome::failed, Outcome::stopped};
constexpr std::array<std::string_view, std::variant_size_v<FromAgent>> kRequests{
    "join", "report", "leave", "resumed", "log_part", "operate"};

/// Causes whose counters are there from the beginning: rates need the zero before the first one.
constexpr std::array kFailures{CauseWord::failure, CauseWord::hang, CauseWord::node_lost,
                               CauseWord::network};
constexpr std::array kChanges{CauseWord::joined, CauseWord::drained};

double seconds(std::int64_t wall_ms) {
    return static_cast<double>(wall_ms) / 1000;
}

class Renderer {
   public:
    Renderer(const std::vector<JobView>& jobs, const MetricsOptions& options)
        : jobs_(jobs), options_(options), writer_(options.format) {
        for (const JobView& job : jobs) {
            labels_.push_back(MetricsWriter::labels({{"job_id", job.job}}));
        }
    }

    std::string render(const DaemonCounters* daemon) {
        writer_.family("regroup", Type::info, "The release of the daemon.");
        writer_.sample("", {{"version", REGROUP_VERSION}}, std::uint64_t{1});
        if (daemon != nullptr) {
            daemon_metrics(*daemon);
        }
        times();
        interruptions();
        progress();
        nodes();
        budgets();
        training();
        snapshots();
        if (options_.nodes) {
            each_node();
        }
        return writer_.take();
    }

   private:
    /// One sample for each job; `value` may return nothing.
    template <typename Value>
    void of_jobs(std::string_view name, Type type, std::string_view help, Value value) {
        writer_.family(name, type, help);
        for (std::size_t i = 0; i < jobs_.size(); ++i) {
            if (const std::optional number = value(jobs_[i])) {
                writer_.sample(labels_[i], {}, *number);
            }
        }
    }
    void count(std::string_view name, std::string_view help, std::uint64_t JobTotals::* member) {
        of_jobs(name, Type::counter, help,
                [member](const JobView& job) { return std::optional(job.totals.*member); });
    }
    template <typename WallMs>
    void timestamp(std::string_view name, std::string_view help, WallMs wall_ms) {
        of_jobs(name, Type::gauge, help, [wall_ms](const JobView& job) {
            return wall_ms(job) == 0 ? std::nullopt : std::optional(seconds(wall_ms(job)));
        });
    }

    void daemon_metrics(const DaemonCounters& daemon);
    void times();
    void interruptions();
    template <std::size_t kUsual>
    void by_cause(std::string_view name, std::string_view help,
                  const std::array<CauseWord, kUsual>& usual,
                  std::array<std::uint64_t, kCauseWords> JobTotals::* member);
    void progress();
    void nodes();
    void budgets();
    void training();
    void snapshots();
    void each_node();
    template <typename Value>
    void of_nodes(std::string_view name, Type type, std::string_view help, Value value);

    const std::vector<JobView>& jobs_;
    const MetricsOptions& options_;
    MetricsWriter writer_;
    std::vector<std::string> labels_;       // Of each job.
    std::vector<std::string> node_labels_;  // Of each node of each job.
};

void Renderer::daemon_metrics(const DaemonCounters& daemon) {
    const auto both = [&](std::string_view name, std::string_view help, std::uint64_t in,
                          std::uint64_t out) {
        writer_.family(name, Type::counter, help);
        writer_.sample("", {{"direction", "in"}}, in);
        writer_.sample("", {{"direction", "out"}}, out);
    };
    writer_.family("regroup_daemon_start_timestamp_seconds", Type::gauge,
                   "When this daemon was started.");
    writer_.sample("", {}, seconds(daemon.began_ms));
    writer_.family("regroup_daemon_leading", Type::gauge,
                   "1 if this daemon leads, 0 if it stands by for another one.");
    writer_.sample("", {}, std::uint64_t{daemon.leads ? 1U : 0U});
    writer_.family("regroup_daemon_jobs", Type::gauge, "Jobs, by their phase.");
    for (const Phase phase : kPhases) {
        const auto in_phase = [&](const JobView& job) { return job.status.phase == phase; };
        writer_.sample("", {{"phase", to_string(phase)}},
                       static_cast<std::uint64_t>(std::ranges::count_if(jobs_, in_phase)));
    }
    writer_.family("regroup_daemon_jobs_ended", Type::counter, "Jobs that have ended.");
    for (const Outcome outcome : kOutcomes) {
        writer_.sample("", {{"outcome", to_string(outcome)}},
                       daemon.jobs_ended[static_cast<std::size_t>(outcome)]);
    }
    writer_.family("regroup_daemon_connections", Type::gauge, "Open connections, by their peer.");
    writer_.sample("", {{"kind", "node"}}, daemon.nodes_connected);
    writer_.sample("", {{"kind", "unidentified"}}, daemon.unidentified_connected);
    writer_.sample("", {{"kind", "store"}}, daemon.store_connected);
    writer_.sample("", {{"kind", "http"}}, daemon.http_connected);
    writer_.sample("", {{"kind", "other"}}, daemon.others_connected);
    writer_.family("regroup_daemon_connections_accepted", Type::counter,
                   "Connections that the daemon has accepted.");
    writer_.sample("", {}, daemon.connections_accepted);
    writer_.family("regroup_daemon_refusals", Type::counter,
                   "Connections and messages that the daemon has refused.");
    for (const auto& [kind, number] : daemon.refusals) {
        writer_.sample("", {{"kind", kind}}, number);
    }
    both("regroup_daemon_messages", "Messages on the connections of nodes and operators.",
         daemon.messages_in, daemon.messages_out);
    both("regroup_daemon_traffic_bytes", "Bytes of these messages.", daemon.bytes_in,
         daemon.bytes_out);
    writer_.family("regroup_rendezvous_requests", Type::counter,
                   "Messages of nodes and operators, by their request.");
    for (std::size_t i = 0; i < kRequests.size(); ++i) {
        writer_.sample("", {{"request", kRequests[i]}}, daemon.requests[i]);
    }
    writer_.family("regroup_store_requests", Type::counter,
                   "Requests to the store in the daemon, with --serve-torchrun.");
    writer_.sample("", {}, daemon.store_requests);
    writer_.family("regroup_daemon_silence_ratio", Type::histogram,
                   "Time between two messages of a node, as a part of the heartbeat timeout of its "
                   "job. At 1 the node is taken for lost.");
    writer_.histogram("", {}, SilenceHistogram::kLimits, daemon.silences.counts,
                      daemon.silences.sum);
    writer_.family("regroup_daemon_delay_seconds", Type::histogram,
                   "How late the daemon's timer of one second was. Messages wait for as long.");
    writer_.histogram("", {}, Histogram::kLimits, daemon.delays.counts, daemon.delays.sum_s);
}

void Renderer::times() {
    writer_.family("regroup_job_seconds", Type::counter,
                   "Time of the job, by what it was spent on. ETTR, or goodput, is the rate of "
                   "the state productive, divided by the rate of all states.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (std::size_t state = 0; state < kJobStates; ++state) {
            writer_.sample(labels_[i], {{"state", to_string(static_cast<JobState>(state))}},
                           to_seconds(jobs_[i].totals.time[state]));
        }
    }
    writer_.family("regroup_job_state", Type::gauge,
                   "1 for the state in which the job is now; after its end, for its outcome.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        const auto sample = [&, now = state_word(jobs_[i])](std::string_view state) {
            writer_.sample(labels_[i], {{"state", state}}, std::uint64_t{state == now ? 1U : 0U});
        };
        for (std::size_t state = 0; state < kJobStates; ++state) {
            sample(to_string(static_cast<JobState>(state)));
        }
        sample(kStalled);
        for (const Outcome outcome : kOutcomes) {
            sample(to_string(outcome));
        }
    }
    writer_.family("regroup_job_phase", Type::gauge, "1 for the phase in which the job is now.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (const Phase phase : kPhases) {
            writer_.sample(labels_[i], {{"phase", to_string(phase)}},
                           std::uint64_t{phase == jobs_[i].status.phase ? 1U : 0U});
        }
    }
    timestamp("regroup_job_start_timestamp_seconds", "When the job began.",
              [](const JobView& job) { return job.began_ms; });
    timestamp("regroup_job_last_step_timestamp_seconds",
              "When the last step was committed. Absent if the program does not tell its steps.",
              [](const JobView& job) { return job.last_step_ms; });
    timestamp("regroup_job_last_failure_timestamp_seconds", "When a worker failed last.",
              [](const JobView& job) { return job.last_loss.failure_ms; });
    timestamp("regroup_job_last_recovery_timestamp_seconds",
              "When the job had recovered from its last failure.",
              [](const JobView& job) { return job.last_loss.recovery_ms; });
}

template <std::size_t kUsual>
void Renderer::by_cause(std::string_view name, std::string_view help,
                        const std::array<CauseWord, kUsual>& usual,
                        std::array<std::uint64_t, kCauseWords> JobTotals::* member) {
    writer_.family(name, Type::counter, help);
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        const std::array<std::uint64_t, kCauseWords>& counts = jobs_[i].totals.*member;
        for (std::size_t word = 0; word < kCauseWords; ++word) {
            const auto cause = static_cast<CauseWord>(word);
            if (counts[word] > 0 || std::ranges::find(usual, cause) != usual.end()) {
                writer_.sample(labels_[i], {{"cause", to_string(cause)}}, counts[word]);
            }
        }
    }
}

void Renderer::interruptions() {
    by_cause("regroup_job_restarts", "Rounds that a failure ended, by its cause.", kFailures,
             &JobTotals::restarts);
    by_cause("regroup_job_planned_changes",
             "Rounds that ended at a step boundary for other nodes, by the cause.", kChanges,
             &JobTotals::planned);
    count("regroup_job_cut_short", "Restarts and changes after which no step came.",
          &JobTotals::cut_short);
    writer_.family("regroup_recovery_seconds", Type::histogram,
                   "Time of recoveries from failures, by their stage. The stage total is all of "
                   "them together.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (std::size_t stage = 0; stage < kStageNames.size(); ++stage) {
            const Histogram& histogram = jobs_[i].totals.recoveries[stage];
            writer_.histogram(labels_[i], {{"stage", kStageNames[stage]}}, Histogram::kLimits,
                              histogram.counts, histogram.sum_s);
        }
    }
    // A rate of rare events shows nothing.
    writer_.family("regroup_job_last_recovery_seconds", Type::gauge,
                   "Time of the last recovery from a failure, by its stage.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        const std::vector<Incident>& incidents = jobs_[i].status.incidents;
        const auto last = std::find_if(
            incidents.rbegin(), incidents.rend(),
            [](const Incident& incident) { return !incident.planned && !incident.cut_short; });
        for (std::size_t stage = 0; last != incidents.rend() && stage < kStageNames.size();
             ++stage) {
            writer_.sample(labels_[i], {{"stage", kStageNames[stage]}},
                           to_seconds(stages(*last)[stage]));
        }
    }
    count("regroup_job_worker_failures",
          "Failures of workers, as reported: peers that a failed worker took along count, too.",
          &JobTotals::worker_failures);
    count("regroup_job_lost_steps", "Committed steps that had to be done again.",
          &JobTotals::lost_steps);
}

void Renderer::progress() {
    count("regroup_job_rounds", "Rounds that were formed.", &JobTotals::rounds);
    of_jobs("regroup_job_step", Type::gauge,
            "The last committed step. Absent before the first one.", [](const JobView& job) {
                return job.status.step == 0 ? std::nullopt : std::optional(job.status.step);
            });
    of_jobs("regroup_job_steps_per_second", Type::gauge,
            "Steps per second over the last 10 seconds.",
            [](const JobView& job) { return std::optional(job.step_rate); });
    of_jobs("regroup_job_ranks", Type::gauge, "Ranks of the current round; 0 if there is none.",
            [](const JobView& job) { return std::optional(std::uint64_t{job.status.world_size}); });
}

void Renderer::nodes() {
    writer_.family("regroup_job_nodes", Type::gauge, "Nodes, by their place in the job.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        std::array<std::uint64_t, kPlaces.size()> counts{};
        for (const JobStatus::Node& node : jobs_[i].status.nodes) {
            ++counts[static_cast<std::size_t>(node.place)];
        }
        for (std::size_t place = 0; place < kPlaces.size(); ++place) {
            writer_.sample(labels_[i], {{"place", to_string(kPlaces[place])}}, counts[place]);
        }
    }
    of_jobs("regroup_job_nodes_kept_out", Type::gauge,
            "Names of nodes that are quarantined, whether they are there or not.",
            [](const JobView& job) {
                return std::optional(std::uint64_t{job.status.quarantined.size()});
            });
    of_jobs("regroup_job_longest_silence_seconds", Type::gauge,
            "Time since the last message of the member that was silent for longest.",
            [](const JobView& job) {
                Duration longest{};
                for (const JobStatus::Node& node : job.status.nodes) {
                    if (node.place == JobStatus::Membership::member) {
                        longest = std::max(longest, node.silent);
                    }
                }
                return std::optional(to_seconds(longest));
            });
    count("regroup_job_nodes_joined", "Nodes that have joined.", &JobTotals::nodes_joined);
    count("regroup_job_nodes_left", "Nodes that have left in order.", &JobTotals::nodes_left);
    count("regroup_job_nodes_lost", "Nodes that were lost.", &JobTotals::nodes_lost);
    count("regroup_job_nodes_quarantined", "Nodes that were quarantined after failures.",
          &JobTotals::nodes_quarantined);
}

void Renderer::budgets() {
    writer_.family("regroup_job_budget_used", Type::gauge,
                   "The used part of a budget. The job fails when a budget is exceeded.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (const JobStatus::Budget& budget : jobs_[i].status.budgets) {
            writer_.sample(labels_[i], {{"budget", to_string(budget.kind)}},
                           std::uint64_t{budget.used});
        }
    }
    writer_.family("regroup_job_budget_allowed", Type::gauge,
                   "The size of a budget. Absent if there is no limit.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (const JobStatus::Budget& budget : jobs_[i].status.budgets) {
            if (budget.allowed) {
                writer_.sample(labels_[i], {{"budget", to_string(budget.kind)}},
                               std::uint64_t{*budget.allowed});
            }
        }
    }
    of_jobs("regroup_job_kept", Type::gauge,
            "1 if the job's journal takes what the job does, 0 if it has trouble.",
            [](const JobView& job) {
                return std::optional(std::uint64_t{job.journal.empty() ? 1U : 0U});
            });
}

void Renderer::training() {
    const auto count_of = [this](std::string_view name, std::string_view help,
                                 std::uint64_t StepCounters::* member) {
        of_jobs(name, Type::counter, help, [member](const JobView& job) {
            return job.telemetry.last() ? std::optional(job.telemetry.total().*member)
                                        : std::nullopt;
        });
    };
    count_of("regroup_training_steps", "Steps that the program has told the times of.",
             &StepCounters::steps);
    count_of("regroup_training_samples", "Samples of all ranks, as far as the program takes them.",
             &StepCounters::samples);
    writer_.family("regroup_training_seconds", Type::counter,
                   "Time of these steps on rank 0, by the part of a step.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        if (jobs_[i].telemetry.last()) {
            const StepCounters& total = jobs_[i].telemetry.total();
            writer_.sample(labels_[i], {{"part", "data"}}, to_seconds(total.data));
            writer_.sample(labels_[i], {{"part", "compute"}}, to_seconds(total.compute));
            writer_.sample(labels_[i], {{"part", "communication"}},
                           to_seconds(total.communication));
            writer_.sample(labels_[i], {{"part", "waiting"}}, to_seconds(total.waiting));
        }
    }
    writer_.family("regroup_training_value", Type::gauge,
                   "A value that the program reports, such as its loss.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        if (const std::optional<Telemetry>& last = jobs_[i].telemetry.last()) {
            for (const ReportedValue& reported : last->values) {
                writer_.sample(labels_[i], {{"name", reported.name}}, reported.value);
            }
        }
    }
    writer_.family("regroup_training_slow_rank_excess_ratio", Type::gauge,
                   "How much longer the work of a slow rank takes than that of the others.");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (const SlowRank& slow : jobs_[i].slow_ranks) {
            writer_.sample(labels_[i], {{"rank", std::to_string(slow.rank)}}, slow.excess);
        }
    }
}

void Renderer::snapshots() {
    writer_.family("regroup_snapshot_step", Type::gauge,
                   "The newest step that every rank has saved (whole), of which each part has a "
                   "copy (kept), and that is in the folder (written).");
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        if (const std::optional<SnapshotFacts>& last = jobs_[i].snapshots.last()) {
            writer_.sample(labels_[i], {{"state", "whole"}}, last->step);
            if (last->kept_step) {
                writer_.sample(labels_[i], {{"state", "kept"}}, *last->kept_step);
            }
            if (last->written_step) {
                writer_.sample(labels_[i], {{"state", "written"}}, *last->written_step);
            }
        }
    }
    of_jobs("regroup_snapshot_age_seconds", Type::gauge, "Since the newest whole step was saved.",
            [](const JobView& job) {
                return job.snapshots.last()
                           ? std::optional(to_seconds(job.now - job.snapshots.since()))
                           : std::nullopt;
            });
    of_jobs("regroup_snapshot_memory_bytes", Type::gauge,
            "Memory of the node of group rank 0 for snapshots.", [](const JobView& job) {
                return job.snapshots.last() ? std::optional(job.snapshots.last()->bytes)
                                            : std::nullopt;
            });
}

template <typename Value>
void Renderer::of_nodes(std::string_view name, Type type, std::string_view help, Value value) {
    writer_.family(name, type, help);
    std::size_t next = 0;
    for (const JobView& job : jobs_) {
        for (const JobStatus::Node& node : job.status.nodes) {
            const std::string& labels = node_labels_[next++];
            if (const std::optional number = value(node)) {
                writer_.sample(labels, {}, *number);
            }
        }
    }
}

void Renderer::each_node() {
    using Node = JobStatus::Node;
    for (std::size_t i = 0; i < jobs_.size(); ++i) {
        for (const Node& node : jobs_[i].status.nodes) {
            // The id is unique, and the name is not.
            node_labels_.push_back(
                labels_[i] + ',' +
                MetricsWriter::labels({{"node", node.name}, {"node_id", node.id}}));
        }
    }
    of_nodes("regroup_node_up", Type::gauge, "1 if the node is connected.", [](const Node& node) {
        return std::optional(std::uint64_t{node.place == JobStatus::Membership::away ? 0U : 1U});
    });
    of_nodes("regroup_node_silence_seconds", Type::gauge, "Time since the node's last message.",
             [](const Node& node) { return std::optional(to_seconds(node.silent)); });
    of_nodes(
        "regroup_node_step", Type::gauge, "The last step that its workers have committed.",
        [](const Node& node) { return node.step == 0 ? std::nullopt : std::optional(node.step); });
    of_nodes("regroup_node_first_rank", Type::gauge,
             "The lowest rank of the node's workers. Absent if it is no member of the round.",
             [](const Node& node) {
                 return node.place == JobStatus::Membership::member
                            ? std::optional(std::uint64_t{node.first_rank})
                            : std::nullopt;
             });
    of_nodes("regroup_node_quarantined", Type::gauge, "1 if the node is quarantined.",
             [](const Node& node) {
                 return std::optional(
                     std::uint64_t{node.place == JobStatus::Membership::quarantined ? 1U : 0U});
             });
}

}  // namespace

std::string metrics_text(const std::vector<JobView>& jobs, const DaemonCounters* daemon,
                         const MetricsOptions& options) {
    return Renderer(jobs, options).render(daemon);
}

}  // namespace regroup::rendezvous
