// SPDX-License-Identifier: Apache-2.0
#include "agent/failure_text.h"

#include <sstream>

namespace regroup::agent {

namespace {

std::string how_it_ended(const rendezvous::WorkerFailure& failure) {
    if (!failure.start_error.empty()) {
        return "could not start: " + failure.start_error;
    }
    if (failure.signal != 0) {
        return "ended by " + rendezvous::signal_name(failure.signal) +
               (failure.core_dumped ? ", core dumped" : "");
    }
    if (failure.unfinished) {
        return "exited with code 0 before its training was finished";
    }
    return "exited with code " + std::to_string(failure.exit_code);
}

void append_lines(std::ostream& out, const char* heading, const std::string& text) {
    if (text.empty()) {
        return;
    }
    out << "  " << heading << ":\n";
    std::istringstream lines(text);
    for (std::string line; std::getline(lines, line);) {
        out << "    " << line << "\n";
    }
}

}  // namespace

std::string failure_text(const rendezvous::WorkerFailure& failure) {
    std::ostringstream out;
    out << "  rank       " << failure.rank << " (local rank " << failure.local_rank << " on node "
        << failure.node << ")\n"
        << "  host       " << failure.host
        << (failure.pid != 0 ? ", pid " + std::to_string(failure.pid) : "") << "\n"
        << "  end        " << how_it_ended(failure) << "\n"
        << "  time       " << failure.time << "\n";
    if (!failure.evidence.empty()) {
        out << "  evidence   " << failure.evidence << "\n";
    }
    if (!failure.error_file.empty()) {
        out << "  error file " << failure.error_file << "\n";
    }
    if (!failure.log_file.empty()) {
        out << "  output     " << failure.log_file << "\n";
    }
    append_lines(out, "its error", failure.error_message);
    append_lines(out, "last lines", failure.last_output);
    return out.str();
}

}  // namespace regroup::agent
