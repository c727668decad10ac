// SPDX-License-Identifier: Apache-2.0
//
// One message of each type with every field away from its default, for tests of the protocol.
#pragma once

#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::testing {

inline rendezvous::WorkerFailure sample_failure() {
    rendezvous::WorkerFailure failure;
    failure.kind = rendezvous::FailureKind::hang;
    failure.rank = 13;
    failure.local_rank = 5;
    failure.node = "node7";
    failure.host = "node7.cluster";
    failure.pid = 4720;
    failure.exit_code = 3;
    failure.signal = 11;
    failure.core_dumped = true;
    failure.start_error = "no such file";
    failure.may_start_later = true;
    failure.time = "2026-11-21 10:05:26";
    failure.last_output = "step 812\nloading shard 14\n";
    failure.log_file = "regroup-runs/nightly/round-4/rank-13.log";
    failure.evidence = "the kernel was out of memory";
    failure.error_message = "RuntimeError: shard 14 is empty\n";
    failure.announced = true;
    failure.unfinished = true;
    failure.error_file = "regroup-runs/nightly/round-4/rank-13.error.json";
    failure.by_silence = true;
    failure.peer_error = rendezvous::PeerError::awaited;
    return failure;
}

inline rendezvous::NodeReport sample_report() {
    rendezvous::NodeReport report;
    report.round = rendezvous::RoundId{4};
    report.state = rendezvous::NodeState::stopping;
    report.store_port = 41231;
    report.failure = sample_failure();
    report.elastic = true;
    report.step = 812;
    report.held_step = 811;
    report.ended_step = 813;
    report.at_work = std::chrono::seconds(40);
    report.ended_ago = std::chrono::seconds(3);
    report.store_spent = true;
    report.draining = "stopped by SIGTERM";
    report.hang = rendezvous::Hang{13,   "rank 13 has been in section 'load' for 12 s",
                                   true, std::chrono::seconds(12),
                                   true, true};
    report.positions = {{12, 812, 40, true, "all_reduce"},
                        {13, 811, 39, false, "load"},
                        {14, 0, 0, false, "", true, std::chrono::seconds(3)}};
    rendezvous::GroupPosition group;
    group.id = 9'007'199'254'740'991;
    group.name = "nccl group default_pg";
    group.size = 16;
    group.rank = 12;
    group.entered = 1043;
    group.started = 1042;
    group.completed = 1041;
    group.knows_starts = group.knows_ends = true;
    group.stood = std::chrono::seconds(12);
    group.called = {{1042, "all_reduce", "4096 float32"}, {1043, "barrier", ""}};
    group.peer = 3;
    report.positions[0].groups = {group};
    report.positions[1].activity = "stopped by a signal";
    report.alarm = 2;
    report.broken_links = {{12, 8, "closed the connection"}};
    report.finished.add({8, 3});
    report.finished.add(15);
    return report;
}

inline rendezvous::Telemetry sample_telemetry() {
    using std::chrono::microseconds;
    return {.pid = 4715,
            .counters = {.steps = 812,
                         .samples = 51968,
                         .data = microseconds(1000001),
                         .compute = microseconds(60000002),
                         .communication = microseconds(20000003),
                         .waiting = microseconds(4000004)},
            .values = {{"grad_norm", -0.125}, {"loss", 1.7e-3}}};
}

inline rendezvous::Join sample_join() {
    rendezvous::Join join;
    join.job = "nightly";
    join.node = "node7-4711-9f3c01aa";
    join.policy.nodes_min = 2;
    join.policy.nodes_max = 4;
    join.policy.restarts_max = 3;
    join.policy.last_call = std::chrono::milliseconds(5001);
    join.policy.heartbeat_timeout = std::chrono::milliseconds(2002);
    join.policy.shutdown_timeout = std::chrono::milliseconds(10003);
    join.policy.grow_after = std::chrono::milliseconds(60004);
    join.policy.regroup_window = std::chrono::milliseconds(205);
    join.policy.standbys_max = 2;
    join.policy.prepare_timeout = std::chrono::milliseconds(120006);
    join.policy.finish_timeout = std::chrono::milliseconds(600010);
    join.policy.on_exit = {{2, rendezvous::Reaction::fail},
                           {3, rendezvous::Reaction::restart},
                           {75, rendezvous::Reaction::retry},
                           {76, rendezvous::Reaction::replace_node}};
    join.policy.budgets = {.hangs = 0,
                           .losses = 7,
                           .refill_steps = 100,
                           .no_progress_max = 6,
                           .delay = std::chrono::milliseconds(107),
                           .node_failures_max = 4,
                           .node_failures_window = std::chrono::milliseconds(600008)};
    join.policy.rank_order = rendezvous::RankOrder::topology;
    join.policy.program = "train";
    join.offer.name = "node7";
    join.offer.workers = 8;
    join.offer.role = "trainer";
    join.offer.slot = 1;
    join.offer.rank_key = "s0.s4.node7";
    join.offer.address = "10.0.0.7";
    join.offer.address_is_explicit = true;
    join.offer.other_addresses = {"192.168.3.7", "2001:db8::7"};
    join.offer.hosts_rendezvous = true;
    join.offer.same_command_only = true;
    join.offer.reads_logs = true;
    join.offer.ends_with_daemon = true;
    join.offer.alone = true;
    join.offer.join_timeout = std::chrono::milliseconds(600009);
    join.offer.secret = "5f1c";
    join.offer.store_key = "a07e";
    join.offer.command = "c0de";
    join.began_ago = std::chrono::milliseconds(1205);
    join.report = sample_report();
    return join;
}

inline rendezvous::Assignment sample_assignment() {
    rendezvous::Assignment assignment;
    assignment.round = rendezvous::RoundId{4};
    assignment.group_rank = 1;
    assignment.group_world_size = 2;
    assignment.first_rank = 8;
    assignment.world_size = 16;
    assignment.role_first_rank = 3;
    assignment.role_world_size = 11;
    assignment.master_addr = "10.0.0.4";
    assignment.master_port = 40117;
    assignment.store_key = "a07e";
    assignment.restart_count = 1;
    assignment.failed_rank = 13;
    assignment.member_serves = true;
    assignment.reason = "rank 13 on node7 was ended by SIGSEGV";
    return assignment;
}

inline rendezvous::Waiting sample_waiting() {
    rendezvous::Waiting waiting;
    waiting.joined = {"node4", "node7"};
    waiting.nodes_min = 3;
    waiting.nodes_max = 4;
    waiting.standby = true;
    waiting.prestart = true;
    waiting.other_command = true;
    waiting.detail = "2 of 3 nodes ready, waiting for 1 more";
    waiting.now_ms = 1764105600123;
    return waiting;
}

inline rendezvous::Verdict sample_verdict() {
    rendezvous::Verdict verdict;
    verdict.outcome = rendezvous::Outcome::failed;
    verdict.reason = "rank 13 on node7 was ended by SIGSEGV; all 3 restarts used";
    verdict.author = "node node7";
    verdict.exit_code = 139;
    verdict.restarts = 3;
    verdict.failure = sample_failure();
    verdict.goodput.lasted = std::chrono::microseconds(3600000001);
    verdict.goodput.lost = std::chrono::microseconds(41003);
    verdict.goodput.lost_at_end = std::chrono::microseconds(904);
    verdict.goodput.count = 3;
    verdict.goodput.planned = 2;
    verdict.goodput.cut_short = 1;
    verdict.goodput.until_start = 1;
    verdict.goodput.lost_steps = 12;
    verdict.goodput.lost_at_least = true;
    return verdict;
}

inline rendezvous::Resumed sample_resumed() {
    return {rendezvous::RoundId{5},          813,
            std::chrono::microseconds(1501), std::chrono::microseconds(702),
            std::chrono::microseconds(2303), std::chrono::microseconds(40005)};
}

inline rendezvous::Operate sample_operate() {
    return {
        "nightly", rendezvous::Operate::Action::drain, "node7", "ann@login1", "new memory modules",
        true};
}

inline rendezvous::Incident sample_incident() {
    using std::chrono::microseconds;
    rendezvous::Incident incident;
    incident.round = rendezvous::RoundId{4};
    incident.next_round = rendezvous::RoundId{5};
    incident.planned = true;
    incident.cause = "rank 13 on node7 ended by SIGKILL";
    incident.decision = "standby node9 took slot 1";
    incident.detect = microseconds(101);
    incident.decide = microseconds(202);
    incident.stop = microseconds(3003);
    incident.join = microseconds(404);
    incident.communicator = microseconds(1501);
    incident.state = microseconds(702);
    incident.first_step = microseconds(2303);
    incident.step = 813;
    incident.lost_steps = 12;
    return incident;
}

inline rendezvous::LogWish sample_log_wish() {
    return {13, rendezvous::LogStream::err, "node7", "/runs/round_4/rank00013.err", 4096, 20};
}

inline std::vector<rendezvous::FromAgent> samples_from_agent() {
    return {sample_join(),
            rendezvous::Report{sample_report(), sample_telemetry(),
                               rendezvous::SnapshotFacts{810, 800, 500, 4'294'967'296},
                               rendezvous::WorkWindow{3, 16, 12, {{std::chrono::seconds(9)}}}},
            rendezvous::Leave{"SIGTERM", true},
            sample_resumed(),
            rendezvous::LogPart{12, "/runs/round_4/rank00013.err", 4107, "step 12345\n", true,
                                "the disk is full"},
            sample_operate()};
}

inline std::vector<rendezvous::FromDaemon> samples_from_daemon() {
    return {
        rendezvous::Assign{sample_assignment(), 1764105600123},
        rendezvous::Stop{rendezvous::RoundId{4}, "node node4 joined", true},
        rendezvous::Prepare{rendezvous::RoundId{4}, true, "drained by ann@login1", true, true},
        rendezvous::SaveStacks{rendezvous::RoundId{4}, 1, "rank 13 hangs", true},
        rendezvous::EndWorker{rendezvous::RoundId{4}, 13, "the round hung on it", true},
        rendezvous::ReadLog{12, sample_log_wish()},
        rendezvous::Fenced{"this node was given up as lost"},
        rendezvous::Dismissed{rendezvous::RoundId{4}},
        rendezvous::Alive{rendezvous::RoundId{4}, std::string("rank 1 finished with exit code 0")},
        sample_waiting(),
        rendezvous::Refused{Errc::overloaded, "the daemon has 1024 jobs already"},
        rendezvous::Recovered{sample_incident()},
        rendezvous::RankIsSlow{rendezvous::RoundId{4}, {13, 0.25}, "node7"},
        rendezvous::Closed{sample_verdict(), true},
        rendezvous::Operated{true, "{\"jobs\":[]}"},
        rendezvous::Elsewhere{"node2:29400"}};
}

}  // namespace regroup::testing
