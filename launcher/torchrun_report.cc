// SPDX-License-Identifier: Apache-2.0
#include "launcher/torchrun_report.h"

#include <algorithm>
#include <sstream>

namespace regroup::launcher {

namespace {

constexpr std::size_t kWidthMax = 60;

// Continuation lines are indented by two more.
std::string indented(const std::string& text) {
    std::string result;
    for (const char c : text) {
        result += c == '\n' ? "\n  " : std::string(1, c);
    }
    return result;
}

std::string traceback(const rendezvous::WorkerFailure& failure) {
    if (!failure.start_error.empty()) {
        return indented(failure.start_error);
    }
    if (!failure.error_message.empty()) {
        return indented(failure.error_message);
    }
    if (failure.signal != 0) {
        return "Signal " + std::to_string(failure.signal) + " (" +
               rendezvous::signal_name(failure.signal) + ") received by PID " +
               std::to_string(failure.pid);
    }
    return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

}  // namespace

std::string torchrun_summary(const std::string& entry_point,
                             const rendezvous::WorkerFailure& failure) {
    std::string time = failure.time;
    std::replace(time.begin(), time.end(), ' ', '_');
    const std::string signal =
        failure.signal != 0 ? " (" + rendezvous::signal_name(failure.signal) + ")" : "";
    const int code = failure.signal != 0 ? -failure.signal : failure.exit_code;
    std::ostringstream entry;
    // Two blanks before the signal, one at the end without it: to the byte.
    entry << "[0]:\n"
          << "  time      : " << time << "\n"
          << "  host      : " << failure.host << "\n"
          << "  rank      : " << failure.rank << " (local_rank: " << failure.local_rank << ")\n"
          << "  exitcode  : " << code << " (pid: " << failure.pid << ") " << signal << "\n"
          << "  error_file: " << (failure.error_file.empty() ? "<N/A>" : failure.error_file) << "\n"
          << "  traceback : " << traceback(failure);
    const std::string title = entry_point + " FAILED";
    std::size_t width = title.size();
    std::istringstream lines(entry.str());
    for (std::string line; std::getline(lines, line);) {
        width = std::max(width, line.size());
    }
    width = std::min(width, kWidthMax);
    const std::string border = std::string(width, '=') + "\n";
    const std::string rule = std::string(width, '-') + "\n";
    return border + title + "\n" + rule + "Failures:\n  <NO_OTHER_FAILURES>\n" + rule +
           "Root Cause (first observed failure):\n" + entry.str() + "\n" + border;
}

}  // namespace regroup::launcher
