// SPDX-License-Identifier: Apache-2.0
#include "launcher/torchrun_report.h"

#include <algorithm>
#include <utility>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"

namespace regroup::launcher {

namespace {

constexpr std::size_t kWidthMax = 60;

std::string traceback(const rendezvous::WorkerFailure& failure) {
    if (!failure.start_error.empty()) {
        return failure.start_error;
    }
    if (!failure.error_message.empty()) {
        return failure.error_message;
    }
    if (failure.signal != 0) {
        return "Signal " + std::to_string(failure.signal) + " (" + signal_name(failure.signal) +
               ") received by PID " + std::to_string(failure.pid);
    }
    return "To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html";
}

}  // namespace

std::vector<std::string> torchrun_summary(const std::string& entry_point,
                                          const rendezvous::WorkerFailure& failure) {
    std::string time = failure.time;
    std::replace(time.begin(), time.end(), ' ', '_');
    const std::string signal = failure.signal != 0 ? " (" + signal_name(failure.signal) + ")" : "";
    const int code = failure.signal != 0 ? -failure.signal : failure.exit_code;
    // Two blanks before the signal, one at the end without it: to the byte.
    std::vector<std::string> entry = {
        "[0]:",
        "  time      : " + time,
        "  host      : " + failure.host,
        "  rank      : " + std::to_string(failure.rank) +
            " (local_rank: " + std::to_string(failure.local_rank) + ")",
        "  exitcode  : " + std::to_string(code) + " (pid: " + std::to_string(failure.pid) + ") " +
            signal,
        "  error_file: " + (failure.error_file.empty() ? "<N/A>" : failure.error_file),
    };
    const std::string trace = traceback(failure);
    const char* indent = "  traceback : ";
    for (const std::string& line : printable_lines(trace)) {
        entry.push_back(std::exchange(indent, "  ") + line);
    }
    if (trace.ends_with('\n')) {
        entry.emplace_back(indent);
    }
    const std::string title = entry_point + " FAILED";
    std::size_t width = title.size();
    for (const std::string& line : entry) {
        width = std::max(width, line.size());
    }
    width = std::min(width, kWidthMax);
    const std::string border(width, '=');
    const std::string rule(width, '-');
    std::vector<std::string> lines = {border,
                                      title,
                                      rule,
                                      "Failures:",
                                      "  <NO_OTHER_FAILURES>",
                                      rule,
                                      "Root Cause (first observed failure):"};
    lines.insert(lines.end(), entry.begin(), entry.end());
    lines.push_back(border);
    return lines;
}

}  // namespace regroup::launcher
