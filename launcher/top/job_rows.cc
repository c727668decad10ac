// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/job_rows.h"

#include <algorithm>
#include <utility>

#include "launcher/top/lists.h"
#include "launcher/top/text_width.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/time_text.h"

namespace regroup::launcher::top {

namespace {

std::string curve(const std::vector<double>& rates, std::size_t width, bool utf8) {
    constexpr const char* kBlocks[] = {"\u2581", "\u2582", "\u2583", "\u2584",
                                       "\u2585", "\u2586", "\u2587", "\u2588"};
    constexpr const char* kAscii[] = {"_", ".", "-", ":", "=", "+", "*", "#"};
    const std::size_t shown = std::min(width, rates.size());
    const auto begin = rates.end() - static_cast<std::ptrdiff_t>(shown);
    const double highest = shown == 0 ? 0 : *std::max_element(begin, rates.end());
    std::string text;
    for (auto rate = begin; rate != rates.end(); ++rate) {
        const double part = highest <= 0 ? 0 : *rate / highest;
        const auto level = std::min<std::size_t>(7, static_cast<std::size_t>(part * 8));
        text += utf8 ? kBlocks[level] : kAscii[level];
    }
    return text;
}

}  // namespace

Row line(std::string text, Style style) {
    return {{std::move(text), style}};
}

std::vector<Row> head_of(const Job& job, std::size_t width, bool utf8) {
    std::vector<Row> rows;
    for (std::string& part : wrapped(job.text, width, 2)) {
        rows.push_back(line(std::move(part), style_of_phase(job.phase)));
    }
    const std::string steps = job.step == 0 ? ""
                                            : "step " + step_text(job.step) + ", " +
                                                  rate_text(job.step_rate) + " steps/s, ";
    rows.push_back(line(steps + counted(job.ranks, "rank") + " on " + counted(job.members, "node") +
                        ", " + counted(job.restarts, "restart") + ", goodput " +
                        goodput_text(job.goodput) + ", age " + format_age(job.age)));
    if (job.rates.size() > 1) {
        constexpr std::size_t kCurveMax = 60;
        const std::size_t shown =
            std::min({kCurveMax, job.rates.size(), width - std::min<std::size_t>(width, 24)});
        rows.push_back(
            {{"steps/s in " + format_age(job.rates_over * static_cast<int>(shown)) + "  ",
              Style::dim},
             {curve(job.rates, shown, utf8), Style::good}});
    }
    if (!job.telemetry.empty()) {
        for (std::string& part : wrapped(job.telemetry, width, 2)) {
            rows.push_back(line(std::move(part)));
        }
    }
    if (!job.snapshots.empty()) {
        for (std::string& part : wrapped(job.snapshots, width, 2)) {
            rows.push_back(line(std::move(part)));
        }
    }
    if (!job.budgets.empty()) {
        rows.push_back(line("used: " + job.budgets, Style::dim));
    }
    if (!job.journal.empty()) {
        rows.push_back(line("journal: " + job.journal, Style::bad));
    }
    return rows;
}

std::vector<Row> tail_of(const Job& job) {
    constexpr std::size_t kOutputShown = 3;
    constexpr std::size_t kIncidentsShown = 8;
    std::vector<Row> rows;
    for (const std::string& node : job.quarantined) {
        rows.push_back(line(node, Style::bad));
    }
    if (job.failure) {
        rows.push_back({{"last failure", Style::bold},
                        {" " + job.failure->time + ": " + job.failure->text, Style::normal}});
        const std::vector<std::string>& output = job.failure->last_output;
        for (std::size_t i = output.size() - std::min(output.size(), kOutputShown);
             i < output.size(); ++i) {
            rows.push_back(line("  | " + output[i], Style::dim));
        }
    }
    if (!job.incidents.empty()) {
        rows.push_back(line(job.recoveries, Style::bold));
    }
    for (std::size_t i = 0; i < std::min(kIncidentsShown, job.incidents.size()); ++i) {
        const Incident& incident = job.incidents[i];
        rows.push_back(line("  " + incident.text, incident.planned ? Style::dim : Style::normal));
    }
    return rows;
}

std::vector<Row> help_rows() {
    std::vector<Row> rows;
    for (const char* text :
         {"regroup top follows a daemon. It changes nothing.", "",
          "Up Down PgUp PgDn Home End   move the cursor (also k j g G)",
          "Enter                        show one job", "Esc                          go back",
          "/                            show only rows that contain a text",
          "s                            sort by the next column",
          "r                            reverse the order", "Ctrl-L                       redraw",
          "q                            quit", "",
          "STEPS/S   committed steps per second, over the last 10 s",
          "GOODPUT   part of the time since the first step that went into kept steps",
          "HEARD     time since the daemon last heard from the node", "", "Any key goes back."}) {
        rows.push_back(line(text));
    }
    return rows;
}

}  // namespace regroup::launcher::top
