// SPDX-License-Identifier: Apache-2.0
//
// Sentences for people, made from the values of the state machines. No code parses these sentences.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/core/job_status.h"
#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// "rank 5 on b was ended by SIGSEGV", "rank 0 on a exited with code 3", "rank 1 on a could not
/// start: ..."; with the worker's own message: "rank 0 on a exited with code 78: there is no data
/// set".
[[nodiscard]] std::string describe(const WorkerFailure& failure);
/// "rank 2 on b is slow: outside of collectives it spends 19 % more time than the median of the
/// others, which wait for it". `node` may be empty.
[[nodiscard]] std::string describe(const SlowRank& slow, const std::string& node);
/// "rank 3 is in load at step 12; the others wait for it".
[[nodiscard]] std::string describe(const HangCulprit& culprit);
/// "rank 1", "ranks 0-3", "ranks 0-3, 7 and 12 more".
[[nodiscard]] std::string describe(const RankSummary& ranks);
/// "rank 1 finished with exit code 0, and rank 0 has gone on for 8.0 s since".
[[nodiscard]] std::string describe(const PartialFinish& finish);
/// "node b is lost: silent for 3.0 s", "node c joined", "rank 0 on b was ended by SIGKILL".
[[nodiscard]] std::string describe(const Cause& cause);
/// "node b is drained by ops: maintenance".
[[nodiscard]] std::string describe(const Cause::Leaving& leaving);
/// "standby d took slot 1", "going on with 2 nodes", "the same nodes again".
[[nodiscard]] std::string describe(const Succession& succession);
/// One line: "recovered in 12.3 ms: rank 5 on b was ended by SIGKILL; standby d took slot 1 (detect
/// ...)", "not recovered after 12.3 ms: ...; round 4 ended before its first step (detect ...)".
[[nodiscard]] std::string describe(const Incident& incident);
/// One line: "round 4 after 12 ms: rank 5 on b was ended by SIGKILL; standby d took slot 1; 3 steps
/// to do again".
[[nodiscard]] std::string describe_briefly(const Incident& incident);
/// "3 recoveries took 41 ms; 99.9 % of 35 s spent training", "2 recoveries and 1 planned change, 1
/// of them cut short, took ...; 512 steps were done again". Empty if there was none.
[[nodiscard]] std::string describe(const Goodput& goodput);
/// "failures 1 of 3, node losses 0".
[[nodiscard]] std::string describe(const std::vector<JobStatus::Budget>& budgets);
[[nodiscard]] std::string describe(const Author& author);
[[nodiscard]] std::string describe(const JobEnding& ending);
/// "3 rounds ended because of it within 10 min, the last one because ...".
[[nodiscard]] std::string describe(const Quarantine& quarantine);
/// "node b is quarantined for 30 s: ...".
[[nodiscard]] std::string describe(const QuarantinedNode& node);
/// One sentence: what the job does, or which nodes it waits for and for how long at most.
[[nodiscard]] std::string describe(const Situation& situation);
[[nodiscard]] std::string describe(const Refusal& refusal);
/// A note on the node in addition to its place, or empty.
[[nodiscard]] std::string describe_detail(const JobStatus::Node& node);

}  // namespace regroup::rendezvous
