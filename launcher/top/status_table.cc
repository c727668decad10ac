// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/status_table.h"

#include <algorithm>
#include <vector>

#include <nlohmann/json.hpp>

#include "launcher/top/status.h"
#include "launcher/top/text_width.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/json/json_text.h"

namespace regroup::launcher::top {

namespace {

std::string nodes_table(const std::vector<NodeRow>& nodes) {
    std::vector<std::vector<std::string>> rows{
        {"NODE", "ADDRESS", "PLACE", "RANKS", "STATE", "STEP", "HEARD", ""}};
    for (const NodeRow& node : nodes) {
        rows.push_back({node.name, node.address, node.place, node.ranks, node.state,
                        step_text(node.step), format_duration(node.silent) + " ago", node.detail});
    }
    std::vector<int> widths(rows.front().size());
    for (const auto& row : rows) {
        for (std::size_t i = 0; i < row.size(); ++i) {
            widths[i] = std::max(widths[i], static_cast<int>(columns_of(row[i])));
        }
    }
    std::string out;
    for (const auto& row : rows) {
        out += "  " + in_columns(row, widths) + "\n";
    }
    return nodes.empty() ? "" : out;
}

std::string text_of(const Job& job) {
    constexpr std::size_t kIncidentsShown = 5;
    std::string out = "job " + job.id + ": " + job.phase + ", round " + std::to_string(job.round);
    if (job.ranks != 0) {
        out += ", " + counted(job.ranks, "rank") + ", " +
               (job.step == 0 ? "" : "step " + step_text(job.step) + ", ") +
               counted(job.restarts, "restart");
    }
    const auto line = [&out](const std::string& head, const std::string& text) {
        out += text.empty() ? "" : "  " + head + text + "\n";
    };
    out += "\n  " + job.text + "\n";
    line("journal: ", job.journal);
    out += nodes_table(job.nodes);
    line("", job.nodes_left_out == 0 ? "" : "and " + counted(job.nodes_left_out, "node") + " more");
    for (const std::string& node : job.quarantined) {
        line("", node);
    }
    line("", job.snapshots);
    line("used: ", job.budgets);
    line("", job.recoveries);
    for (std::size_t i = std::min(kIncidentsShown, job.incidents.size()); i-- > 0;) {
        line("  ", job.incidents[i].text);
    }
    return out;
}

}  // namespace

std::string status_table(const std::string& json_text) {
    const std::optional<Status> status = parse_status(json_text);
    if (!status || status->jobs.empty()) {
        return status ? "no jobs\n" : printable(json_text) + "\n";
    }
    std::string out;
    for (const Job& job : status->jobs) {
        out += (out.empty() ? "" : "\n") + text_of(job);
    }
    if (status->jobs_left_out > 0) {
        out += "\nand " + counted(status->jobs_left_out, "job") + " more (--job=ID shows one)\n";
    }
    return out;
}

std::string status_json(const std::string& json_text) {
    const auto object = parse_ordered_json(json_text);
    return object.is_discarded() ? printable(json_text)
                                 : printable_json(regroup::json_text(object));
}

}  // namespace regroup::launcher::top
