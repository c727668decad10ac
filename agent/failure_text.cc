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
    return "exited with code " + std::to_string(failure.exit_code);
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
    if (!failure.log_file.empty()) {
        out << "  output     " << failure.log_file << "\n";
    }
    if (!failure.last_output.empty()) {
        out << "  last lines:\n";
        std::istringstream lines(failure.last_output);
        for (std::string line; std::getline(lines, line);) {
            out << "    " << line << "\n";
        }
    }
    return out.str();
}

}  // namespace regroup::agent
