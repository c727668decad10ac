// SPDX-License-Identifier: Apache-2.0
#include <limits>
#include <utility>

#include "rendezvous/base/telemetry_limits.h"
#include "rendezvous/base/text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/parts.h"
#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the parts of every message; this file is about them.

namespace {

constexpr std::uint64_t kWorkersMax = std::uint64_t{1} << 20U;
constexpr std::uint64_t kExitCodeMax = 255;
constexpr std::uint64_t kSignalMax = 127;

void read_on_exit(FieldReader& outer, std::map<int, Reaction>& out) {
    static constexpr Reaction kReactions[] = {Reaction::restart, Reaction::fail, Reaction::retry,
                                              Reaction::replace_node};
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
        reader->choice(key, out[static_cast<int>(code)], kReactions);
    }
    outer.adopt(*reader);
}

void read_budgets(FieldReader& outer, Budgets& out) {
    std::optional<FieldReader> reader = outer.object("budgets");
    if (!reader) {
        return;
    }
    if (reader->has("hangs")) {
        reader->integer("hangs", out.hangs.emplace());
    }
    if (reader->has("losses")) {
        reader->integer("losses", out.losses.emplace());
    }
    reader->integer("refill_steps", out.refill_steps);
    reader->integer("no_progress_max", out.no_progress_max);
    reader->duration("delay_ms", out.delay);
    reader->integer("node_failures_max", out.node_failures_max);
    reader->duration("node_failures_window_ms", out.node_failures_window);
    outer.adopt(*reader);
}

void read_hang(FieldReader& outer, std::optional<Hang>& out) {
    std::optional<FieldReader> reader = outer.object("hang");
    if (!reader) {
        return;
    }
    Hang& hang = out.emplace();
    reader->integer("rank", hang.rank);
    reader->text("text", hang.text, kSentenceBytesMax);
    reader->flag("shared", hang.shared);
    reader->duration("stood_ms", hang.stood);
    outer.adopt(*reader);
}

void read_positions(FieldReader& outer, std::vector<RankPosition>& out) {
    for (FieldReader& reader : outer.objects("positions", kPositionsMax)) {
        RankPosition& position = out.emplace_back();
        reader.integer("rank", position.rank);
        reader.integer("step", position.step);
        reader.integer("operations", position.operations);
        reader.flag("waiting", position.waiting);
        reader.text("doing", position.doing, kDoingBytesMax);
        reader.flag("stopped", position.stopped);
        reader.duration("silent_ms", position.silent);
        outer.adopt(reader);
    }
}

void read_broken_links(FieldReader& outer, std::vector<BrokenLink>& out) {
    for (FieldReader& reader : outer.objects("broken_links", kBrokenLinksMax)) {
        BrokenLink& link = out.emplace_back();
        reader.require("rank");
        reader.require("peer");
        reader.integer("rank", link.rank);
        reader.integer("peer", link.peer);
        reader.text("text", link.text, kLinkBytesMax);
        outer.adopt(reader);
    }
}

void read_ranks(FieldReader& outer, std::string_view key, RankSet& out) {
    for (FieldReader& reader : outer.objects(key, kFinishedMax)) {
        RankSet::Range range;
        reader.require("first");
        reader.require("count");
        reader.integer("first", range.first);
        reader.integer("count", range.count, kWorkersMax);
        outer.adopt(reader);
        if (std::uint64_t{range.first} + range.count > std::numeric_limits<std::uint32_t>::max()) {
            outer.complain(key, "has ranks that are too high");
            return;
        }
        out.add(range);
    }
}

void read_values(FieldReader& outer, std::vector<ReportedValue>& out) {
    std::optional<FieldReader> reader = outer.object("values");
    if (!reader) {
        return;
    }
    for (const std::string& name : reader->keys()) {
        if (out.size() == kReportedValuesMax) {
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
        reader->real(name, out.emplace_back(name).value);
    }
    outer.adopt(*reader);
}

void read_slow_ranks(FieldReader& outer, std::vector<SlowRank>& out) {
    for (FieldReader& reader : outer.objects("slow_ranks", kSlowRanksMax)) {
        SlowRank& slow = out.emplace_back();
        reader.require("rank");
        reader.integer("rank", slow.rank);
        reader.real("excess", slow.excess, 0);
        outer.adopt(reader);
    }
}

}  // namespace

void read(FieldReader& outer, std::string_view key, std::optional<WorkerFailure>& out) {
    std::optional<FieldReader> reader = outer.object(key);
    if (!reader) {
        return;
    }
    static constexpr FailureKind kKinds[] = {FailureKind::failure, FailureKind::hang,
                                             FailureKind::user_error, FailureKind::retry,
                                             FailureKind::bad_node};
    WorkerFailure failure;
    if (reader->has("kind")) {
        reader->choice("kind", failure.kind, kKinds);
    }
    reader->integer("rank", failure.rank);
    reader->integer("local_rank", failure.local_rank);
    reader->text("node", failure.node, kNameBytesMax);
    reader->text("host", failure.host, kNameBytesMax);
    reader->integer("pid", failure.pid);
    reader->integer("exit_code", failure.exit_code, kExitCodeMax, -1);
    reader->integer("signal", failure.signal, kSignalMax);
    reader->flag("core_dumped", failure.core_dumped);
    reader->text("start_error", failure.start_error, kSentenceBytesMax);
    reader->flag("may_start_later", failure.may_start_later);
    reader->text("time", failure.time, kNameBytesMax);
    reader->last_text("last_output", failure.last_output, kOutputBytesMax);
    reader->text("log", failure.log_file, kSentenceBytesMax);
    reader->text("evidence", failure.evidence, kSentenceBytesMax);
    reader->last_text("error_message", failure.error_message, kOutputBytesMax);
    reader->text("error_file", failure.error_file, kSentenceBytesMax);
    reader->flag("announced", failure.announced);
    reader->flag("unfinished", failure.unfinished);
    reader->flag("by_silence", failure.by_silence);
    if (reader->has("peer_error")) {
        static constexpr PeerError kErrors[] = {PeerError::none, PeerError::awaited,
                                                PeerError::lost};
        reader->choice("peer_error", failure.peer_error, kErrors);
    }
    // The job's exit code comes from this failure, so it must not be 0 or unset.
    if (failure.start_error.empty() && failure.signal == 0 && failure.exit_code <= 0) {
        reader->complain("exit_code", "reports no failure, and no other field does");
    }
    outer.adopt(*reader);
    out = std::move(failure);
}

void read(FieldReader& reader, NodeReport& report) {
    static constexpr NodeState kStates[] = {NodeState::stopped, NodeState::running,
                                            NodeState::stopping, NodeState::finished};
    reader.require("round");
    reader.round("round", report.round);
    reader.choice("state", report.state, kStates);
    reader.integer("store_port", report.store_port);
    read(reader, "failure", report.failure);
    reader.flag("elastic", report.elastic);
    reader.integer("step", report.step);
    reader.integer("held_step", report.held_step);
    reader.integer("ended_step", report.ended_step);
    reader.duration("at_work_ms", report.at_work);
    reader.duration("ended_ago_ms", report.ended_ago);
    reader.flag("store_spent", report.store_spent);
    reader.text("draining", report.draining, kSentenceBytesMax);
    read_hang(reader, report.hang);
    read_positions(reader, report.positions);
    reader.integer("alarm", report.alarm);
    read_broken_links(reader, report.broken_links);
    read_ranks(reader, "finished", report.finished);
}

void read(FieldReader& outer, std::string_view key, std::optional<Telemetry>& out) {
    std::optional<FieldReader> reader = outer.object(key);
    if (!reader) {
        return;
    }
    Telemetry telemetry;
    StepCounters& counters = telemetry.counters;
    reader->integer("pid", telemetry.pid);
    reader->require("steps");
    reader->integer("steps", counters.steps);
    reader->integer("samples", counters.samples);
    reader->microseconds("data_us", counters.data);
    reader->microseconds("compute_us", counters.compute);
    reader->microseconds("communication_us", counters.communication);
    reader->microseconds("waiting_us", counters.waiting);
    read_values(*reader, telemetry.values);
    read_slow_ranks(*reader, telemetry.slow_ranks);
    outer.adopt(*reader);
    out = std::move(telemetry);
}

void read(FieldReader& reader, JobPolicy& policy) {
    reader.require("nodes_min");
    reader.require("nodes_max");
    reader.integer("nodes_min", policy.nodes_min);
    reader.integer("nodes_max", policy.nodes_max);
    reader.integer("restarts_max", policy.restarts_max);
    reader.text("program", policy.program, kNameBytesMax);
    reader.duration("last_call_ms", policy.last_call);
    reader.duration("heartbeat_timeout_ms", policy.heartbeat_timeout, kHeartbeatTimeoutMax);
    reader.duration("shutdown_timeout_ms", policy.shutdown_timeout);
    reader.duration("grow_after_ms", policy.grow_after);
    reader.duration("regroup_window_ms", policy.regroup_window);
    reader.duration("prepare_timeout_ms", policy.prepare_timeout);
    reader.duration("finish_timeout_ms", policy.finish_timeout);
    reader.integer("standbys_max", policy.standbys_max);
    read_on_exit(reader, policy.on_exit);
    read_budgets(reader, policy.budgets);
    if (reader.has("rank_order")) {
        static constexpr RankOrder kOrders[] = {RankOrder::automatic, RankOrder::joined,
                                                RankOrder::name,      RankOrder::scheduler,
                                                RankOrder::topology,  RankOrder::file};
        reader.choice("rank_order", policy.rank_order, kOrders);
    }
    if (const Result<void> valid = validate(policy); !valid) {
        const bool of_time = policy.nodes_min > 0 && policy.nodes_min <= policy.nodes_max;
        reader.complain(of_time ? "heartbeat_timeout_ms" : "nodes_min",
                        "does not fit: " + valid.error().detail);
    }
}

void read(FieldReader& reader, Offer& offer) {
    reader.require("name");
    reader.name("name", offer.name);
    reader.integer("workers", offer.workers, kWorkersMax);
    reader.name("role", offer.role);
    if (reader.has("slot")) {
        reader.integer("slot", offer.slot.emplace());
    }
    reader.name("rank_key", offer.rank_key);
    reader.name("address", offer.address);
    offer.address_is_explicit = !offer.address.empty();
    reader.names("other_addresses", offer.other_addresses);
    reader.flag("same_command_only", offer.same_command_only);
    reader.flag("reads_logs", offer.reads_logs);
    reader.flag("hosts_rendezvous", offer.hosts_rendezvous);
    reader.flag("ends_with_daemon", offer.ends_with_daemon);
    reader.flag("alone", offer.alone);
    reader.duration("join_timeout_ms", offer.join_timeout);
    reader.name("secret", offer.secret);
    reader.name("store_key", offer.store_key);
    reader.name("command", offer.command);
}

void read(FieldReader& reader, Assignment& a) {
    for (const char* key : {"round", "group_rank", "group_world_size", "first_rank", "world_size",
                            "master_addr", "master_port"}) {
        reader.require(key);
    }
    reader.round("round", a.round);
    reader.integer("group_rank", a.group_rank);
    reader.integer("group_world_size", a.group_world_size);
    reader.integer("first_rank", a.first_rank);
    reader.integer("world_size", a.world_size);
    a.role_first_rank = a.first_rank;
    a.role_world_size = a.world_size;
    reader.integer("role_first_rank", a.role_first_rank);
    reader.integer("role_world_size", a.role_world_size);
    reader.name("master_addr", a.master_addr);
    reader.integer("master_port", a.master_port);
    reader.name("store_key", a.store_key);
    reader.integer("restart_count", a.restart_count);
    if (reader.has("failed_rank")) {
        reader.integer("failed_rank", a.failed_rank.emplace());
    }
    reader.flag("member_serves", a.member_serves);
    read_words(reader, "reason", a.reason);
}

void read(FieldReader& reader, Resumed& resumed) {
    reader.require("round");
    reader.require("step");
    reader.round("round", resumed.round);
    reader.integer("step", resumed.step);
    reader.microseconds("communicator_us", resumed.communicator, kWaitMax);
    reader.microseconds("state_us", resumed.state, kWaitMax);
    reader.microseconds("first_step_us", resumed.first_step, kWaitMax);
    reader.microseconds("ago_us", resumed.ago, kWaitMax);
}
void read(FieldReader& reader, Incident& incident) {
    reader.require("round");
    reader.require("next_round");
    reader.round("round", incident.round);
    reader.round("next_round", incident.next_round);
    reader.flag("planned", incident.planned);
    reader.flag("cut_short", incident.cut_short);
    read_words(reader, "cause", incident.cause);
    reader.text("decision", incident.decision.told, kSentenceBytesMax);
    reader.microseconds("detect_us", incident.detect);
    reader.microseconds("decide_us", incident.decide);
    reader.microseconds("stop_us", incident.stop);
    reader.microseconds("join_us", incident.join);
    reader.microseconds("communicator_us", incident.communicator);
    reader.microseconds("state_us", incident.state);
    reader.microseconds("first_step_us", incident.first_step);
    reader.integer("step", incident.step);
    reader.integer("lost_steps", incident.lost_steps);
    reader.flag("lost_at_least", incident.lost_at_least);
}

void read(FieldReader& reader, Verdict& verdict) {
    static constexpr Outcome kOutcomes[] = {Outcome::succeeded, Outcome::failed, Outcome::stopped};
    reader.choice("outcome", verdict.outcome, kOutcomes);
    read_words(reader, "reason", verdict.reason);
    read_words(reader, "author", verdict.author);
    reader.integer("exit_code", verdict.exit_code, kExitCodeMax);
    reader.integer("restarts", verdict.restarts);
    read(reader, "failure", verdict.failure);
    Goodput& goodput = verdict.goodput;
    reader.microseconds("lasted_us", goodput.lasted);
    reader.microseconds("lost_us", goodput.lost);
    reader.microseconds("lost_at_end_us", goodput.lost_at_end);
    reader.integer("recoveries", goodput.count);
    reader.integer("recoveries_planned", goodput.planned);
    reader.integer("recoveries_cut_short", goodput.cut_short);
    reader.integer("recoveries_until_start", goodput.until_start);
    reader.integer("lost_steps", goodput.lost_steps);
    reader.flag("lost_at_least", goodput.lost_at_least);
}

void read(FieldReader& reader, LogWish& wish) {
    static constexpr LogStream kStreams[] = {LogStream::out, LogStream::err};
    reader.require("rank");
    reader.integer("rank", wish.rank);
    reader.choice("stream", wish.stream, kStreams);
    reader.name("at_node", wish.node);
    reader.text("file", wish.file, kSentenceBytesMax);
    reader.integer("offset", wish.offset);
    reader.integer("lines", wish.lines);
}

}  // namespace regroup::protocol
