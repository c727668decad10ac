// SPDX-License-Identifier: Apache-2.0
//
// One message of each type with every field away from its default, for tests of the protocol.
#pragma once

#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::testing {

inline rendezvous::WorkerFailure sample_failure() {
    rendezvous::WorkerFailure failure;
    failure.rank = 13;
    failure.local_rank = 5;
    failure.node = "node7";
    failure.host = "node7.cluster";
    failure.pid = 4720;
    failure.exit_code = 3;
    failure.signal = 11;
    failure.core_dumped = true;
    failure.start_error = "no such file";
    failure.time = "2026-11-21 10:05:26";
    failure.last_output = "step 812\nloading shard 14\n";
    failure.log_file = "regroup-runs/nightly/round-4/rank-13.log";
    failure.evidence = "the kernel was out of memory";
    failure.error_message = "RuntimeError: shard 14 is empty\n";
    failure.error_file = "regroup-runs/nightly/round-4/rank-13.error.json";
    return failure;
}

inline rendezvous::NodeReport sample_report() {
    rendezvous::NodeReport report;
    report.round = rendezvous::RoundId{4};
    report.state = rendezvous::NodeState::stopping;
    report.store_port = 41231;
    report.failure = sample_failure();
    return report;
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
    join.policy.program = "train";
    join.offer.name = "node7";
    join.offer.workers = 8;
    join.offer.role = "trainer";
    join.offer.slot = 1;
    join.offer.address = "10.0.0.7";
    join.offer.address_is_explicit = true;
    join.offer.other_addresses = {"192.168.3.7", "2001:db8::7"};
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
    assignment.restart_count = 1;
    assignment.reason = "rank 13 on node7 was ended by SIGSEGV";
    return assignment;
}

inline rendezvous::Waiting sample_waiting() {
    rendezvous::Waiting waiting;
    waiting.joined = {"node4", "node7"};
    waiting.nodes_min = 3;
    waiting.nodes_max = 4;
    waiting.spare = true;
    waiting.detail = "2 of 3 nodes ready, waiting for 1 more";
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
    return verdict;
}

inline std::vector<rendezvous::FromAgent> samples_from_agent() {
    return {sample_join(), rendezvous::Report{sample_report()}, rendezvous::Leave{"SIGTERM"}};
}

inline std::vector<rendezvous::FromDaemon> samples_from_daemon() {
    return {rendezvous::Assign{sample_assignment()},
            rendezvous::Stop{rendezvous::RoundId{4}, "node node4 is lost"},
            rendezvous::Fenced{"this node was given up as lost"},
            rendezvous::Dismissed{rendezvous::RoundId{4}},
            rendezvous::Alive{rendezvous::RoundId{4}},
            sample_waiting(),
            rendezvous::Refused{Errc::overloaded, "the daemon has 1024 jobs already"},
            rendezvous::Closed{sample_verdict()}};
}

}  // namespace regroup::testing
