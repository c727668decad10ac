// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/plain_lines.h"

#include "launcher/top/text_width.h"

namespace regroup::launcher::top {

namespace {

std::string right(const std::string& text, std::size_t columns) {
    // A value that is too wide moves the others: a number that is cut would mislead.
    return columns_of(text) < columns ? fit(text, columns, true) : text;
}

std::string left(const std::string& text, std::size_t columns) {
    return columns_of(text) < columns ? fit(text, columns) : text;
}

std::string row(const std::string& time, const std::string& job, const std::string& phase,
                const std::string& round, const std::string& nodes, const std::string& ranks,
                const std::string& step, const std::string& rate, const std::string& restarts,
                const std::string& what) {
    return left(time, 12) + "  " + left(job, 16) + "  " + left(phase, 9) + "  " + right(round, 5) +
           "  " + right(nodes, 5) + "  " + right(ranks, 5) + "  " + right(step, 9) + "  " +
           right(rate, 7) + "  " + right(restarts, 8) + "  " + what;
}

}  // namespace

std::string plain_heading() {
    return row("TIME", "JOB", "PHASE", "ROUND", "NODES", "RANKS", "STEP", "STEPS/S", "RESTARTS",
               "WHAT");
}

std::vector<std::string> plain_lines(const Status& status, const std::string& time) {
    if (status.jobs.empty()) {
        return {time + "  no jobs"};
    }
    std::vector<std::string> lines;
    for (const Job& job : status.jobs) {
        lines.push_back(row(time, job.id, job.phase, std::to_string(job.round),
                            std::to_string(job.members), std::to_string(job.ranks),
                            step_text(job.step), rate_text(job.step_rate),
                            std::to_string(job.restarts), job.text));
    }
    if (status.jobs_left_out > 0) {
        lines.push_back(time + "  " + std::to_string(status.jobs_left_out) +
                        " more jobs do not fit (--job=ID shows one)");
    }
    return lines;
}

}  // namespace regroup::launcher::top
