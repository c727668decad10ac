// SPDX-License-Identifier: Apache-2.0
#include "launcher/status_text.h"

#include <algorithm>
#include <cstdio>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/json_fields.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher {

namespace {

using nlohmann::json;
using Rows = std::vector<std::vector<std::string>>;

std::string table(const Rows& rows, const std::string& indent) {
    std::vector<std::size_t> widths;
    for (const auto& row : rows) {
        widths.resize(std::max(widths.size(), row.size()));
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], row[i].size());
        }
    }
    std::string out;
    for (const auto& row : rows) {
        std::string line = indent;
        for (std::size_t i = 0; i < row.size(); ++i) {
            line += row[i] + std::string(widths[i] - row[i].size() + 2, ' ');
        }
        out += line.substr(0, line.find_last_not_of(' ') + 1) + "\n";
    }
    return out;
}

/// "-": its program does not tell its steps, or not yet.
std::string step_of(const json& object) {
    const std::uint64_t step = number(object, "step");
    return step == 0 ? "-" : std::to_string(step);
}

std::string nodes_table(const json& job) {
    Rows rows{{"NODE", "ADDRESS", "PLACE", "RANKS", "STATE", "STEP", "HEARD", ""}};
    for (const json& node : field(job, "nodes")) {
        rows.push_back({text(node, "name"), text(node, "address"), text(node, "place"),
                        ranks_of(node), text(node, "state"), step_of(node),
                        format_duration(seconds(node, "silent_s")) + " ago", text(node, "detail")});
    }
    std::string out = rows.size() > 1 ? table(rows, "  ") : "";
    if (const std::uint64_t more = number(job, "nodes_left_out")) {
        out += "  and " + count(more, "node") + " more\n";
    }
    return out;
}

std::string journal_trouble(const json& job) {
    const std::string trouble = text(job, "journal");
    return trouble.empty() ? "" : "  journal: " + trouble + "\n";
}

std::string quarantined(const json& job) {
    std::string out;
    for (const json& node : field(job, "quarantined")) {
        out += "  quarantined for " + format_duration(seconds(node, "left_s")) +
               " more: " + text(node, "name") + ", " + text(node, "reason") + "\n";
    }
    return out;
}

std::string budgets(const json& job) {
    std::string out;
    for (const json& budget : field(job, "budgets")) {
        const bool bounded = budget.contains("allowed");
        out += (out.empty() ? "  used: " : ", ") + text(budget, "what") + " " +
               std::to_string(number(budget, "used")) +
               (bounded ? " of " + std::to_string(number(budget, "allowed")) : "");
    }
    return out.empty() ? out : out + "\n";
}

std::string or_more(const json& object) {
    return flag(object, "lost_at_least") ? " or more" : "";
}

std::string incidents(const json& job) {
    constexpr std::size_t kShownMax = 5;
    const json& all = field(job, "incidents");
    if (!all.is_array() || all.empty()) {
        return "";
    }
    const std::uint64_t planned = number(job, "incidents_planned");
    const std::uint64_t cut_short = number(job, "incidents_cut_short");
    const std::uint64_t until_start = number(job, "incidents_until_start");
    std::string out =
        "  recoveries: " + std::to_string(number(job, "incidents_count")) +
        (planned == 0 ? "" : ", " + std::to_string(planned) + " planned") +
        (cut_short == 0 ? "" : ", " + std::to_string(cut_short) + " cut short") +
        (until_start == 0 ? ""
                          : ", " + std::to_string(until_start) + " only until the programs ran") +
        ", " + format_duration(seconds(job, "lost_s")) + " of " +
        format_duration(seconds(job, "lasted_s"));
    if (const json& end = field(job, "lost_at_end_s"); end.is_number() && end.get<double>() > 0) {
        out += ", and its end " + format_duration(seconds(job, "lost_at_end_s"));
    }
    if (const std::uint64_t lost = number(job, "lost_steps")) {
        out += "; " + count(lost, "step") + or_more(job) + " done again";
    } else if (flag(job, "lost_at_least")) {
        out += "; how many steps were done again is not known";
    }
    out += "\n";
    for (std::size_t i = all.size() - std::min(all.size(), kShownMax); i < all.size(); ++i) {
        out += "    round " + std::to_string(number(all[i], "next_round")) +
               (flag(all[i], "cut_short") ? ", cut short after " : " after ") +
               format_duration(total_of(all[i])) + ": " + text(all[i], "cause") +
               (text(all[i], "decision").empty() ? "" : "; " + text(all[i], "decision"));
        if (const std::uint64_t lost = number(all[i], "lost_steps")) {
            out += "; " + count(lost, "step") + or_more(all[i]) + " to do again";
        }
        out += "\n";
    }
    return out;
}

}  // namespace

std::string status_table(const std::string& json_text) {
    const json object = parse_json(json_text);
    const json& jobs = field(object, "jobs");
    if (!jobs.is_array() || jobs.empty()) {
        return jobs.is_array() ? "no jobs\n" : printable(json_text) + "\n";
    }
    std::string out;
    for (const json& job : jobs) {
        out += (out.empty() ? "job " : "\njob ") + text(job, "job") + ": " + text(job, "phase") +
               ", round " + std::to_string(number(job, "round"));
        if (number(job, "world_size") != 0) {
            out += ", " + count(number(job, "world_size"), "rank") + ", " +
                   (number(job, "step") == 0 ? "" : "step " + step_of(job) + ", ") +
                   count(number(job, "restarts"), "restart");
        }
        out += "\n  " + text(job, "text") + "\n" + journal_trouble(job) + nodes_table(job) +
               quarantined(job) + budgets(job) + incidents(job);
    }
    if (const std::uint64_t more = number(object, "jobs_left_out")) {
        out += "\nand " + count(more, "job") + " more (--job=ID shows one)\n";
    }
    return out;
}

std::string status_json(const std::string& json_text) {
    const auto object = parse_ordered_json(json_text);
    return object.is_discarded() ? printable(json_text)
                                 : printable_json(regroup::json_text(object));
}

}  // namespace regroup::launcher
