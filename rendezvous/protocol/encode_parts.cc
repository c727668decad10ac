// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/parts.h"
#include "rendezvous/protocol/text.h"
#include "rendezvous/text/describe.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the parts of every message; this file is about them.
using nlohmann::json;

namespace {

// Longer durations are measurements, whose exact values no longer matter: the peer would refuse
// them.
std::int64_t milliseconds(Duration duration) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(std::min(duration, kWaitMax))
        .count();
}

// A worker may say that it is at any step. The peer would refuse a larger number.
std::uint64_t whole(std::uint64_t count) {
    return std::min(count, kIntegerMax);
}

void put_us(json& object, const char* key, Duration duration, Duration max = kLifetimeMax) {
    if (duration.count() > 0) {
        object[key] =
            std::chrono::duration_cast<std::chrono::microseconds>(std::min(duration, max)).count();
    }
}

json to_json(const Budgets& budgets) {
    const Budgets usual;
    json object = json::object();
    const auto put = [&](const char* key, auto value, auto default_value) {
        if (value != default_value) {
            object[key] = value;
        }
    };
    if (budgets.hangs) {
        object["hangs"] = *budgets.hangs;
    }
    if (budgets.losses) {
        object["losses"] = *budgets.losses;
    }
    put("refill_steps", budgets.refill_steps, usual.refill_steps);
    put("no_progress_max", budgets.no_progress_max, usual.no_progress_max);
    put("delay_ms", milliseconds(budgets.delay), milliseconds(usual.delay));
    put("node_failures_max", budgets.node_failures_max, usual.node_failures_max);
    put("node_failures_window_ms", milliseconds(budgets.node_failures_window),
        milliseconds(usual.node_failures_window));
    return object;
}

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
    return positions;
}

json to_json(const RankPosition& position) {
    json object = {{"rank", position.rank},
                   {"step", whole(position.step)},
                   {"operations", whole(position.operations)}};
    if (position.waiting) {
        object["waiting"] = true;
    }
    if (!position.doing.empty()) {
        object["doing"] = beginning_of(position.doing, kDoingBytesMax);
    }
    if (position.stopped) {
        object["stopped"] = true;
    }
    if (position.silent != Duration::zero()) {
        object["silent_ms"] = milliseconds(position.silent);
    }
    return object;
}

}  // namespace

std::string sentence(const std::string& text) {
    return beginning_of(text, kSentenceBytesMax);
}

void put_sentence(json& object, const char* key, const std::string& text) {
    if (!text.empty()) {
        object[key] = sentence(text);
    }
}

void write(json& object, const WorkerFailure& failure) {
    object["rank"] = failure.rank;
    object["local_rank"] = failure.local_rank;
    object["node"] = beginning_of(failure.node, kNameBytesMax);
    object["host"] = beginning_of(failure.host, kNameBytesMax);
    object["pid"] = failure.pid;
    object["exit_code"] = failure.exit_code;
    object["time"] = beginning_of(failure.time, kNameBytesMax);
    object["signal"] = failure.signal;
    object["log"] = sentence(failure.log_file);
    if (failure.kind != FailureKind::failure) {
        object["kind"] = to_string(failure.kind);
    }
    if (failure.core_dumped) {
        object["core_dumped"] = true;
    }
    put_sentence(object, "start_error", failure.start_error);
    if (failure.may_start_later) {
        object["may_start_later"] = true;
    }
    if (!failure.last_output.empty()) {
        object["last_output"] = end_of(failure.last_output, kOutputBytesMax);
    }
    put_sentence(object, "evidence", failure.evidence);
    if (!failure.error_message.empty()) {
        object["error_message"] = end_of(failure.error_message, kOutputBytesMax);
    }
    put_sentence(object, "error_file", failure.error_file);
    if (failure.announced) {
        object["announced"] = true;
    }
    if (failure.unfinished) {
        object["unfinished"] = true;
    }
    if (failure.by_silence) {
        object["by_silence"] = true;
    }
    if (failure.peer_error != PeerError::none) {
        object["peer_error"] = to_string(failure.peer_error);
    }
}

void write(json& object, const NodeReport& report) {
    object["round"] = number(report.round);
    object["state"] = to_string(report.state);
    object["store_port"] = report.store_port;
    if (report.failure) {
        write(object["failure"], *report.failure);
    }
    if (report.elastic) {
        object["elastic"] = true;
    }
    if (report.step != 0) {
        object["step"] = whole(report.step);
    }
    if (report.held_step != 0) {
        object["held_step"] = whole(report.held_step);
    }
    if (report.ended_step != 0) {
        object["ended_step"] = whole(report.ended_step);
    }
    if (report.at_work != Duration::zero()) {
        object["at_work_ms"] = milliseconds(report.at_work);
    }
    if (report.ended_ago != Duration::zero()) {
        object["ended_ago_ms"] = milliseconds(report.ended_ago);
    }
    if (report.store_spent) {
        object["store_spent"] = true;
    }
    put_sentence(object, "draining", report.draining);
    if (report.hang) {
        object["hang"] = {{"rank", report.hang->rank}, {"text", sentence(report.hang->text)}};
        if (report.hang->shared) {
            object["hang"]["shared"] = true;
        }
        if (report.hang->stood != Duration::zero()) {
            object["hang"]["stood_ms"] = milliseconds(report.hang->stood);
        }
    }
    for (const RankPosition& position : most_behind(report.positions)) {
        object["positions"].push_back(to_json(position));
    }
    if (report.alarm != 0) {
        object["alarm"] = report.alarm;
    }
    for (std::size_t i = 0; i < std::min(report.finished.ranges().size(), kFinishedMax); ++i) {
        const auto& [first, count] = report.finished.ranges()[i];
        object["finished"].push_back({{"first", first}, {"count", count}});
    }
    for (const BrokenLink& link : report.broken_links) {
        json& list = object["broken_links"];
        if (list.size() < kBrokenLinksMax) {
            list.push_back({{"rank", link.rank},
                            {"peer", link.peer},
                            {"text", beginning_of(link.text, kLinkBytesMax)}});
        }
    }
}

void write(json& object, const Telemetry& telemetry) {
    const StepCounters& counters = telemetry.counters;
    object["pid"] = telemetry.pid;
    object["steps"] = whole(counters.steps);
    if (counters.samples != 0) {
        object["samples"] = whole(counters.samples);
    }
    put_us(object, "data_us", counters.data);
    put_us(object, "compute_us", counters.compute);
    put_us(object, "communication_us", counters.communication);
    put_us(object, "waiting_us", counters.waiting);
    for (const ReportedValue& reported : telemetry.values) {
        object["values"][reported.name] = reported.value;
    }
    for (const SlowRank& slow : telemetry.slow_ranks) {
        object["slow_ranks"].push_back({{"rank", slow.rank}, {"excess", slow.excess}});
    }
}

void write(json& object, const JobPolicy& policy) {
    const JobPolicy usual;
    object["nodes_min"] = policy.nodes_min;
    object["nodes_max"] = policy.nodes_max;
    object["restarts_max"] = policy.restarts_max;
    object["program"] = beginning_of(policy.program, kNameBytesMax);
    const auto put = [&](const char* key, Duration value, Duration default_value) {
        if (value != default_value) {
            object[key] = milliseconds(value);
        }
    };
    put("last_call_ms", policy.last_call, usual.last_call);
    put("heartbeat_timeout_ms", policy.heartbeat_timeout, usual.heartbeat_timeout);
    put("shutdown_timeout_ms", policy.shutdown_timeout, usual.shutdown_timeout);
    put("grow_after_ms", policy.grow_after, usual.grow_after);
    put("regroup_window_ms", policy.regroup_window, usual.regroup_window);
    put("prepare_timeout_ms", policy.prepare_timeout, usual.prepare_timeout);
    put("finish_timeout_ms", policy.finish_timeout, usual.finish_timeout);
    if (policy.standbys_max != usual.standbys_max) {
        object["standbys_max"] = policy.standbys_max;
    }
    for (const auto& [code, reaction] : policy.on_exit) {
        object["on_exit"][std::to_string(code)] = to_string(reaction);
    }
    if (policy.budgets != usual.budgets) {
        object["budgets"] = to_json(policy.budgets);
    }
    if (policy.rank_order != usual.rank_order) {
        object["rank_order"] = to_string(policy.rank_order);
    }
}

void write(json& object, const Offer& offer) {
    object["name"] = offer.name;
    object["workers"] = offer.workers;
    if (offer.role != Offer().role) {
        object["role"] = offer.role;
    }
    if (offer.slot) {
        object["slot"] = *offer.slot;
    }
    if (!offer.rank_key.empty()) {
        object["rank_key"] = offer.rank_key;
    }
    if (offer.address_is_explicit && !offer.address.empty()) {
        object["address"] = offer.address;
    }
    if (!offer.other_addresses.empty()) {
        const auto count =
            static_cast<std::ptrdiff_t>(std::min(offer.other_addresses.size(), kNamesMax));
        object["other_addresses"] = std::vector<std::string>(offer.other_addresses.begin(),
                                                             offer.other_addresses.begin() + count);
    }
    if (offer.same_command_only) {
        object["same_command_only"] = true;
    }
    if (offer.reads_logs) {
        object["reads_logs"] = true;
    }
    if (offer.hosts_rendezvous) {
        object["hosts_rendezvous"] = true;
    }
    if (offer.ends_with_daemon) {
        object["ends_with_daemon"] = true;
    }
    if (offer.alone) {
        object["alone"] = true;
    }
    if (offer.join_timeout > Duration::zero()) {
        object["join_timeout_ms"] = milliseconds(offer.join_timeout);
    }
    if (!offer.secret.empty()) {
        object["secret"] = offer.secret;
    }
    if (!offer.store_key.empty()) {
        object["store_key"] = offer.store_key;
    }
    if (!offer.command.empty()) {
        object["command"] = offer.command;
    }
}

void write(json& object, const Assignment& assignment) {
    const Assignment& a = assignment;
    object["round"] = number(a.round);
    object["group_rank"] = a.group_rank;
    object["group_world_size"] = a.group_world_size;
    object["first_rank"] = a.first_rank;
    object["world_size"] = a.world_size;
    object["master_addr"] = a.master_addr;
    object["master_port"] = a.master_port;
    if (!a.store_key.empty()) {
        object["store_key"] = a.store_key;
    }
    object["restart_count"] = a.restart_count;
    if (a.failed_rank) {
        object["failed_rank"] = *a.failed_rank;
    }
    object["reason"] = sentence(describe(a.reason));
    if (a.member_serves) {
        object["member_serves"] = true;
    }
    // With a single role, the usual case, role ranks equal ranks.
    if (a.role_first_rank != a.first_rank || a.role_world_size != a.world_size) {
        object["role_first_rank"] = a.role_first_rank;
        object["role_world_size"] = a.role_world_size;
    }
}

void write(json& object, const Resumed& resumed) {
    object["round"] = number(resumed.round);
    object["step"] = whole(resumed.step);
    put_us(object, "communicator_us", resumed.communicator, kWaitMax);
    put_us(object, "state_us", resumed.state, kWaitMax);
    put_us(object, "first_step_us", resumed.first_step, kWaitMax);
    put_us(object, "ago_us", resumed.ago, kWaitMax);
}

void write(json& object, const Incident& incident) {
    object["round"] = number(incident.round);
    object["next_round"] = number(incident.next_round);
    if (incident.planned) {
        object["planned"] = true;
    }
    if (incident.cut_short) {
        object["cut_short"] = true;
    }
    put_sentence(object, "cause", describe(incident.cause));
    if (incident.decision != Succession()) {
        put_sentence(object, "decision", describe(incident.decision));
    }
    put_us(object, "detect_us", incident.detect);
    put_us(object, "decide_us", incident.decide);
    put_us(object, "stop_us", incident.stop);
    put_us(object, "join_us", incident.join);
    put_us(object, "communicator_us", incident.communicator);
    put_us(object, "state_us", incident.state);
    put_us(object, "first_step_us", incident.first_step);
    if (incident.step != 0) {
        object["step"] = whole(incident.step);
    }
    if (incident.lost_steps != 0) {
        object["lost_steps"] = whole(incident.lost_steps);
    }
    if (incident.lost_at_least) {
        object["lost_at_least"] = true;
    }
}

void write(json& object, const Verdict& verdict) {
    object["outcome"] = to_string(verdict.outcome);
    object["reason"] = sentence(describe(verdict.reason));
    object["author"] = sentence(describe(verdict.author));
    object["exit_code"] = verdict.exit_code;
    object["restarts"] = verdict.restarts;
    if (verdict.failure) {
        write(object["failure"], *verdict.failure);
    }
    const Goodput& goodput = verdict.goodput;
    put_us(object, "lasted_us", goodput.lasted);
    put_us(object, "lost_us", goodput.lost);
    put_us(object, "lost_at_end_us", goodput.lost_at_end);
    if (goodput.count != 0) {
        object["recoveries"] = goodput.count;
    }
    if (goodput.planned != 0) {
        object["recoveries_planned"] = goodput.planned;
    }
    if (goodput.cut_short != 0) {
        object["recoveries_cut_short"] = goodput.cut_short;
    }
    if (goodput.until_start != 0) {
        object["recoveries_until_start"] = goodput.until_start;
    }
    if (goodput.lost_steps != 0) {
        object["lost_steps"] = whole(goodput.lost_steps);
    }
    if (goodput.lost_at_least) {
        object["lost_at_least"] = true;
    }
}

void write(json& object, const LogWish& wish) {
    object["rank"] = wish.rank;
    object["stream"] = to_string(wish.stream);
    if (!wish.node.empty()) {
        object["at_node"] = wish.node;
    }
    if (!wish.file.empty()) {
        put_sentence(object, "file", wish.file);
    }
    if (wish.offset > 0) {
        object["offset"] = wish.offset;
    }
    object["lines"] = wish.lines;
}

}  // namespace regroup::protocol
