// SPDX-License-Identifier: Apache-2.0
#include "agent/text/failure_text.h"

#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"

namespace regroup::agent {

namespace {

void append(std::vector<std::string>& lines, const char* heading, const std::string& text) {
    if (text.empty()) {
        return;
    }
    lines.push_back(std::string("  ") + heading + ":");
    for (const std::string& line : printable_lines(text)) {
        lines.push_back("    " + line);
    }
}

}  // namespace

std::string end_text(const rendezvous::WorkerFailure& failure) {
    if (!failure.start_error.empty()) {
        return "could not start: " + failure.start_error;
    }
    if (failure.signal != 0) {
        return "ended by " + signal_name(failure.signal) +
               (failure.core_dumped ? ", core dumped" : "");
    }
    if (failure.kind == rendezvous::FailureKind::hang && failure.unfinished) {
        return "exited with code 0, and the others did not go on without it";
    }
    if (failure.has_stopped()) {
        return "stopped with the other ranks, because one of them was asked to stop";
    }
    if (failure.unfinished) {
        return "exited with code 0 before its training was finished";
    }
    return "exited with code " + std::to_string(failure.exit_code);
}

std::vector<std::string> failure_lines(const rendezvous::WorkerFailure& failure) {
    std::vector<std::string> lines = {"  rank       " + std::to_string(failure.rank) +
                                      " (local rank " + std::to_string(failure.local_rank) +
                                      " on node " + failure.node + ")"};
    // The daemon does not know these of a worker whose end no agent has reported.
    if (!failure.host.empty()) {
        lines.push_back("  host       " + failure.host +
                        (failure.pid != 0 ? ", pid " + std::to_string(failure.pid) : ""));
    }
    lines.push_back("  end        " + end_text(failure));
    if (!failure.time.empty()) {
        lines.push_back("  time       " + failure.time);
    }
    if (!failure.evidence.empty()) {
        lines.push_back("  evidence   " + failure.evidence);
    }
    if (!failure.error_file.empty()) {
        lines.push_back("  error file " + failure.error_file);
    }
    if (!failure.log_file.empty()) {
        lines.push_back("  output     " + failure.log_file);
    }
    append(lines, "its error", failure.error_message);
    append(lines, "last lines", failure.last_output);
    return lines;
}

}  // namespace regroup::agent
