// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/fields.h"

#include <algorithm>
#include <limits>
#include <tuple>
#include <utility>

#include "rendezvous/base/telemetry_limits.h"
#include "rendezvous/base/text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/text/describe.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the parts of every message; this file is about them.

namespace {

// Of one node. The daemon refuses a node with more workers.
constexpr std::size_t kWorkersToldMax = 4096;
constexpr std::uint64_t kWorkersMax = std::uint64_t{1} << 20U;
constexpr std::uint64_t kExitCodeMax = 255;
constexpr std::uint64_t kSignalMax = 127;
constexpr Choices kReactions{Reaction::restart, Reaction::replace_node};

// Keeps the positions furthest behind if not all fit, since a hang waits for one of them. Among
// ranks without other information, keeps those that are stopped or have been silent longest.
std::vector<RankPosition> most_behind(std::vector<RankPosition> positions) {
    if (positions.size() > kPositionsMax) {
        std::sort(positions.begin(), positions.end(),
                  [](const RankPosition& a, const RankPosition& b) {
                      return std::tie(a.step, a.operations, b.stopped, b.silent, a.rank) <
                             std::tie(b.step, b.operations, a.stopped, a.silent, b.rank);
                  });
        positions.resize(kPositionsMax);
    }
    // Groups in which a rank waits come first; see RankPosition::groups.
    const std::size_t each = kGroupsTold / std::max<std::size_t>(1, positions.size());
    std::size_t groups = 0;
    for (RankPosition& position : positions) {
        position.groups.resize(std::min(position.groups.size(), each));
        groups += position.groups.size();
    }
    // The collective in which the rank is comes first, and then the last ones in order.
    const std::size_t called = kCalledToldOfAll / std::max<std::size_t>(1, groups);
    for (RankPosition& position : positions) {
        for (GroupPosition& group : position.groups) {
            if (group.called.size() > called) {
                const auto second = group.called.begin() + 1;
                group.called.erase(second,
                                   group.called.end() - static_cast<std::ptrdiff_t>(called) + 1);
            }
        }
    }
    return positions;
}

// ---- Objects whose keys are no names of fields.

void visit_reactions(FieldReader& outer, std::map<int, Reaction>& reactions) {
    std::optional<FieldReader> reader = outer.object("on_exit");
    if (!reader) {
        return;
    }
    for (const std::string& key : reader->keys()) {
        const std::uint64_t code = parse_number<std::uint64_t>(key).value_or(0);
        if (code < 1 || code > kExitCodeMax || std::to_string(code) != key) {
            outer.complain("on_exit",
                           "has the key " + quoted(key) + ", which is no exit code from 1 to 255");
            return;
        }
        reader->choice(key, reactions[static_cast<int>(code)], kReactions);
    }
    outer.adopt(*reader);
}

void visit_reactions(FieldWriter& outer, const std::map<int, Reaction>& reactions) {
    if (!reactions.empty()) {
        FieldWriter writer = outer.object("on_exit");
        for (const auto& [code, reaction] : reactions) {
            writer.choice(std::to_string(code), reaction, kReactions, kWritten);
        }
    }
}

void visit_values(FieldReader& outer, std::vector<ReportedValue>& values) {
    std::optional<FieldReader> reader = outer.object("values");
    if (!reader) {
        return;
    }
    for (const std::string& name : reader->keys()) {
        if (values.size() == kReportedValuesMax) {
            outer.complain("values",
                           "has more than " + std::to_string(kReportedValuesMax) + " values");
            return;
        }
        if (!is_value_name(name)) {
            outer.complain("values", "has the key " + quoted(name) +
                                         ", which is no name of a value: a to z, 0 to 9 and _, no "
                                         "digit first, at most " +
                                         std::to_string(kValueNameBytesMax) + " bytes");
            return;
        }
        reader->real(name, values.emplace_back(name).value);
    }
    outer.adopt(*reader);
}

void visit_values(FieldWriter& outer, const std::vector<ReportedValue>& values) {
    if (!values.empty()) {
        FieldWriter writer = outer.object("values");
        for (const ReportedValue& reported : values) {
            writer.real(reported.name, reported.value);
        }
    }
}

void visit_ranks(FieldReader& io, std::string_view key, RankSet& ranks) {
    std::vector<RankSet::Range> ranges;
    io.parts(key, ranges, kFinishedMax);
    for (const RankSet::Range& range : ranges) {
        if (std::uint64_t{range.first} + range.count > std::numeric_limits<std::uint32_t>::max()) {
            io.complain(key, "has ranks that are too high");
            return;
        }
        ranks.add(range);
    }
}

void visit_ranks(FieldWriter& io, std::string_view key, const RankSet& ranks) {
    io.parts(key, ranks.ranges(), kFinishedMax);
}

}  // namespace

std::string sentence(const std::string& text) {
    return beginning_of(text, kSentenceBytesMax);
}

// ---- Parts of parts.

template <class Io>
void visit_fields(Io& io, Visited<Io, RankSet::Range>& range) {
    io.integer("first", range.first, kRequired);
    io.integer("count", range.count, kRequired, {kWorkersMax});
}

template <class Io>
void visit_fields(Io& io, Visited<Io, BrokenLink>& link) {
    io.integer("rank", link.rank, kRequired);
    io.integer("peer", link.peer, kRequired);
    io.text("text", link.text, kWritten, kLinkBytesMax);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, SlowRank>& slow) {
    io.integer("rank", slow.rank, kRequired);
    io.real("excess", slow.excess, 0);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, CalledCollective>& called) {
    io.integer("number", called.number, kRequired);
    io.text("kind", called.kind, kWritten, kDoingBytesMax);
    io.text("arguments", called.arguments, Presence::optional, kDoingBytesMax);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, GroupPosition>& group) {
    io.integer("id", group.id, kRequired);
    io.text("name", group.name, Presence::optional, kDoingBytesMax);
    io.integer("size", group.size);
    io.integer("rank", group.rank);
    io.integer("entered", group.entered);
    io.integer("started", group.started);
    io.integer("completed", group.completed);
    io.flag("knows_starts", group.knows_starts);
    io.flag("knows_ends", group.knows_ends);
    io.duration("stood_ms", group.stood);
    io.parts("called", group.called, kCalledTold);
    io.integer("peer", group.peer);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, RankPosition>& position) {
    io.integer("rank", position.rank, kWritten);
    io.integer("step", position.step, kWritten);
    io.integer("operations", position.operations, kWritten);
    io.flag("waiting", position.waiting);
    io.text("doing", position.doing, Presence::optional, kDoingBytesMax);
    io.flag("stopped", position.stopped);
    io.duration("silent_ms", position.silent);
    io.text("activity", position.activity, Presence::optional, kDoingBytesMax);
    io.parts("groups", position.groups, kGroupsTold);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Hang>& hang) {
    io.integer("rank", hang.rank, kWritten);
    io.text("text", hang.text, kWritten);
    io.flag("shared", hang.shared);
    io.flag("in_collective", hang.in_collective);
    io.flag("only_told", hang.only_told);
    io.duration("stood_ms", hang.stood);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Budgets>& budgets) {
    const Budgets usual;
    io.integer("hangs", budgets.hangs);
    io.integer("losses", budgets.losses);
    io.integer("refill_steps", budgets.refill_steps);
    io.integer("no_progress_max", budgets.no_progress_max,
               unless(budgets.no_progress_max == usual.no_progress_max));
    io.duration("delay_ms", budgets.delay, unless(budgets.delay == usual.delay));
    io.integer("node_failures_max", budgets.node_failures_max,
               unless(budgets.node_failures_max == usual.node_failures_max));
    io.duration("node_failures_window_ms", budgets.node_failures_window,
                unless(budgets.node_failures_window == usual.node_failures_window));
}

template <class Io>
void visit_fields(Io& io, Visited<Io, WorkerFailure>& failure) {
    io.choice("kind", failure.kind, {FailureKind::failure, FailureKind::bad_node});
    io.integer("rank", failure.rank, kWritten);
    io.integer("local_rank", failure.local_rank, kWritten);
    io.text("node", failure.node, kWritten, kNameBytesMax);
    io.text("host", failure.host, kWritten, kNameBytesMax);
    io.integer("pid", failure.pid, kWritten);
    io.integer("exit_code", failure.exit_code, kWritten, {kExitCodeMax, -1});
    io.integer("signal", failure.signal, kWritten, {kSignalMax});
    io.flag("core_dumped", failure.core_dumped);
    io.text("start_error", failure.start_error);
    io.flag("may_start_later", failure.may_start_later);
    io.text("time", failure.time, kWritten, kNameBytesMax);
    io.last_text("last_output", failure.last_output, kOutputBytesMax);
    io.text("log", failure.log_file, kWritten);
    io.text("evidence", failure.evidence);
    io.last_text("error_message", failure.error_message, kOutputBytesMax);
    io.text("error_file", failure.error_file);
    io.flag("announced", failure.announced);
    io.flag("unfinished", failure.unfinished);
    io.flag("by_silence", failure.by_silence);
    io.choice("peer_error", failure.peer_error, {PeerError::none, PeerError::lost});
    if constexpr (Io::kReads) {
        // The job's exit code comes from this failure, so it must not be 0 or unset.
        if (failure.start_error.empty() && failure.signal == 0 && failure.exit_code <= 0) {
            io.complain("exit_code", "reports no failure, and no other field does");
        }
    }
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Goodput>& goodput) {
    io.microseconds("lasted_us", goodput.lasted);
    io.microseconds("lost_us", goodput.lost);
    io.microseconds("lost_at_end_us", goodput.lost_at_end);
    io.integer("recoveries", goodput.count);
    io.integer("recoveries_planned", goodput.planned);
    io.integer("recoveries_cut_short", goodput.cut_short);
    io.integer("recoveries_until_start", goodput.until_start);
    io.integer("lost_steps", goodput.lost_steps);
    io.flag("lost_at_least", goodput.lost_at_least);
}

// ---- Parts.

template <class Io>
void visit_fields(Io& io, Visited<Io, NodeReport>& report) {
    io.round("round", report.round);
    io.choice("state", report.state, {NodeState::stopped, NodeState::finished}, kRequired);
    io.integer("store_port", report.store_port, kWritten);
    io.part("failure", report.failure);
    io.flag("elastic", report.elastic);
    io.integer("step", report.step);
    io.integer("held_step", report.held_step);
    io.integer("ended_step", report.ended_step);
    io.duration("at_work_ms", report.at_work);
    io.duration("ended_ago_ms", report.ended_ago);
    io.flag("store_spent", report.store_spent);
    io.text("draining", report.draining);
    io.part("hang", report.hang);
    if constexpr (Io::kReads) {
        io.parts("positions", report.positions, kPositionsMax);
    } else {
        io.parts("positions", most_behind(report.positions), kPositionsMax);
    }
    io.integer("alarm", report.alarm);
    io.parts("broken_links", report.broken_links, kBrokenLinksMax);
    visit_ranks(io, "finished", report.finished);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Telemetry>& telemetry) {
    auto& counters = telemetry.counters;
    io.integer("pid", telemetry.pid, kWritten);
    io.integer("steps", counters.steps, kRequired);
    io.integer("samples", counters.samples);
    io.microseconds("data_us", counters.data);
    io.microseconds("compute_us", counters.compute);
    io.microseconds("communication_us", counters.communication);
    io.microseconds("waiting_us", counters.waiting);
    visit_values(io, telemetry.values);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, SnapshotFacts>& snapshots) {
    io.integer("step", snapshots.step, kRequired);
    io.integer("kept_step", snapshots.kept_step);
    io.integer("written_step", snapshots.written_step);
    io.integer("bytes", snapshots.bytes);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, WorkTime>& work) {
    io.microseconds("us", work.time);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, WorkWindow>& window) {
    io.integer("number", window.number, kRequired);
    io.integer("world_size", window.world_size, kRequired);
    io.integer("first_rank", window.first_rank, kWritten);
    io.parts("work", window.work, kWorkersToldMax);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, JobPolicy>& policy) {
    const JobPolicy usual;
    io.integer("nodes_min", policy.nodes_min, kRequired);
    io.integer("nodes_max", policy.nodes_max, kRequired);
    io.integer("restarts_max", policy.restarts_max, kWritten);
    io.text("program", policy.program, kWritten, kNameBytesMax);
    io.duration("last_call_ms", policy.last_call, unless(policy.last_call == usual.last_call));
    io.duration("heartbeat_timeout_ms", policy.heartbeat_timeout,
                unless(policy.heartbeat_timeout == usual.heartbeat_timeout), kHeartbeatTimeoutMax);
    io.duration("shutdown_timeout_ms", policy.shutdown_timeout,
                unless(policy.shutdown_timeout == usual.shutdown_timeout));
    io.duration("grow_after_ms", policy.grow_after, unless(policy.grow_after == usual.grow_after));
    io.duration("regroup_window_ms", policy.regroup_window,
                unless(policy.regroup_window == usual.regroup_window));
    io.duration("prepare_timeout_ms", policy.prepare_timeout,
                unless(policy.prepare_timeout == usual.prepare_timeout));
    io.duration("finish_timeout_ms", policy.finish_timeout);
    io.integer("standbys_max", policy.standbys_max);
    visit_reactions(io, policy.on_exit);
    io.part("budgets", policy.budgets, unless(policy.budgets == usual.budgets));
    io.choice("rank_order", policy.rank_order, {RankOrder::automatic, RankOrder::file});
    if constexpr (Io::kReads) {
        if (const Result<void> valid = validate(policy); !valid) {
            const bool of_time = policy.nodes_min > 0 && policy.nodes_min <= policy.nodes_max;
            io.complain(of_time ? "heartbeat_timeout_ms" : "nodes_min",
                        "does not fit: " + valid.error().detail);
        }
    }
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Offer>& offer) {
    io.name("name", offer.name, kRequired);
    io.integer("workers", offer.workers, kWritten, {kWorkersMax});
    io.name("role", offer.role, unless(offer.role == Offer().role));
    io.integer("slot", offer.slot);
    io.name("rank_key", offer.rank_key);
    io.name("address", offer.address,
            offer.address_is_explicit ? Presence::optional : Presence::left_out);
    if constexpr (Io::kReads) {
        offer.address_is_explicit = !offer.address.empty();
    }
    io.names("other_addresses", offer.other_addresses);
    io.flag("same_command_only", offer.same_command_only);
    io.flag("reads_logs", offer.reads_logs);
    io.flag("hosts_rendezvous", offer.hosts_rendezvous);
    io.flag("ends_with_daemon", offer.ends_with_daemon);
    io.flag("alone", offer.alone);
    io.duration("join_timeout_ms", offer.join_timeout);
    io.name("secret", offer.secret);
    io.name("store_key", offer.store_key);
    io.name("command", offer.command);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Assignment>& assignment) {
    auto& a = assignment;
    io.round("round", a.round);
    io.integer("group_rank", a.group_rank, kRequired);
    io.integer("group_world_size", a.group_world_size, kRequired);
    io.integer("first_rank", a.first_rank, kRequired);
    io.integer("world_size", a.world_size, kRequired);
    if constexpr (Io::kReads) {
        constexpr std::uint32_t kWorldMax = std::uint32_t{1} << 31U;
        if (a.first_rank >= a.world_size || a.world_size > kWorldMax) {
            io.complain("first_rank", "is no rank of the world");
        }
    }
    // With a single role, the usual case, role ranks equal ranks.
    const Presence of_role =
        unless(a.role_first_rank == a.first_rank && a.role_world_size == a.world_size);
    if constexpr (Io::kReads) {
        a.role_first_rank = a.first_rank;
        a.role_world_size = a.world_size;
    }
    io.integer("role_first_rank", a.role_first_rank, of_role);
    io.integer("role_world_size", a.role_world_size, of_role);
    io.name("master_addr", a.master_addr, kRequired);
    io.integer("master_port", a.master_port, kRequired);
    io.name("store_key", a.store_key);
    io.integer("restart_count", a.restart_count, kWritten);
    io.integer("failed_rank", a.failed_rank);
    io.flag("member_serves", a.member_serves);
    io.words("reason", a.reason, kWritten);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Resumed>& resumed) {
    io.round("round", resumed.round);
    io.integer("step", resumed.step, kRequired);
    io.microseconds("communicator_us", resumed.communicator, kWaitMax);
    io.microseconds("state_us", resumed.state, kWaitMax);
    io.microseconds("first_step_us", resumed.first_step, kWaitMax);
    io.microseconds("ago_us", resumed.ago, kWaitMax);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Incident>& incident) {
    io.round("round", incident.round);
    io.round("next_round", incident.next_round);
    io.flag("planned", incident.planned);
    io.flag("cut_short", incident.cut_short);
    io.words("cause", incident.cause);
    io.words("decision", incident.decision, unless(incident.decision == Succession()));
    io.microseconds("detect_us", incident.detect);
    io.microseconds("decide_us", incident.decide);
    io.microseconds("stop_us", incident.stop);
    io.microseconds("join_us", incident.join);
    io.microseconds("communicator_us", incident.communicator);
    io.microseconds("state_us", incident.state);
    io.microseconds("first_step_us", incident.first_step);
    io.integer("step", incident.step);
    io.integer("lost_steps", incident.lost_steps);
    io.flag("lost_at_least", incident.lost_at_least);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, Verdict>& verdict) {
    io.choice("outcome", verdict.outcome, {Outcome::succeeded, Outcome::stopped}, kRequired);
    io.words("reason", verdict.reason, kWritten);
    io.words("author", verdict.author, kWritten);
    io.integer("exit_code", verdict.exit_code, kWritten, {kExitCodeMax});
    io.integer("restarts", verdict.restarts, kWritten);
    io.part("failure", verdict.failure);
    visit_fields(io, verdict.goodput);
}

template <class Io>
void visit_fields(Io& io, Visited<Io, LogWish>& wish) {
    io.integer("rank", wish.rank, kRequired);
    io.choice("stream", wish.stream, {LogStream::out, LogStream::err}, kRequired);
    io.name("at_node", wish.node);
    io.text("file", wish.file);
    io.integer("offset", wish.offset);
    io.integer("lines", wish.lines, kWritten);
}

template void visit_fields(FieldReader& io, NodeReport& report);
template void visit_fields(FieldWriter& io, const NodeReport& report);
template void visit_fields(FieldReader& io, Telemetry& telemetry);
template void visit_fields(FieldWriter& io, const Telemetry& telemetry);
template void visit_fields(FieldReader& io, SnapshotFacts& snapshots);
template void visit_fields(FieldWriter& io, const SnapshotFacts& snapshots);
template void visit_fields(FieldReader& io, WorkWindow& window);
template void visit_fields(FieldWriter& io, const WorkWindow& window);
template void visit_fields(FieldReader& io, SlowRank& slow);
template void visit_fields(FieldWriter& io, const SlowRank& slow);
template void visit_fields(FieldReader& io, JobPolicy& policy);
template void visit_fields(FieldWriter& io, const JobPolicy& policy);
template void visit_fields(FieldReader& io, Offer& offer);
template void visit_fields(FieldWriter& io, const Offer& offer);
template void visit_fields(FieldReader& io, Assignment& assignment);
template void visit_fields(FieldWriter& io, const Assignment& assignment);
template void visit_fields(FieldReader& io, Resumed& resumed);
template void visit_fields(FieldWriter& io, const Resumed& resumed);
template void visit_fields(FieldReader& io, Incident& incident);
template void visit_fields(FieldWriter& io, const Incident& incident);
template void visit_fields(FieldReader& io, Verdict& verdict);
template void visit_fields(FieldWriter& io, const Verdict& verdict);
template void visit_fields(FieldReader& io, LogWish& wish);
template void visit_fields(FieldWriter& io, const LogWish& wish);

}  // namespace regroup::protocol
