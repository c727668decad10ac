// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/worker_failure.h"

#include <csignal>
#include <utility>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/text.h"

namespace regroup::agent {

using rendezvous::WorkerFailure;

namespace {

/// The worker's report, and then as much of the end of its error file as there is room for.
std::string with_error_file(const std::string& report, const std::string& in_file) {
    const std::size_t room = protocol::kOutputBytesMax - report.size() - 1;
    return in_file.empty() ? report : report + "\n" + protocol::end_of(in_file, room);
}

std::string evidence_of(const FailureFacts& facts) {
    switch (facts.status.signal) {
        case SIGXFSZ:
            return "a file, or memory that it shares with other ranks, was to become larger than "
                   "ulimit -f allows";
        case SIGXCPU:
            return "it has used the CPU time that ulimit -t allows";
        default:
            return facts.hang ? facts.hang->reason : facts.oom_evidence;
    }
}

}  // namespace

WorkerFailure failure_of(WorkerFailure known, const FailureFacts& facts) {
    known.exit_code = facts.status.exit_code;
    known.signal = facts.status.signal;
    known.core_dumped = facts.status.core_dumped;
    known.evidence = evidence_of(facts);
    if (facts.hang) {
        known.kind = rendezvous::FailureKind::hang;
        known.by_silence = facts.hang->by_silence;
        return known;
    }
    known.peer_error = facts.peer_error;
    if (facts.own_report) {
        known.kind = facts.own_report->kind;
        known.announced = facts.own_report->announced;
        known.error_message = with_error_file(facts.own_report->text, known.error_message);
    }
    return known;
}

}  // namespace regroup::agent
