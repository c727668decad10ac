// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/lists.h"

#include <algorithm>
#include <utility>

#include "launcher/top/text_width.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time_text.h"

namespace regroup::launcher::top {

namespace {

constexpr std::size_t kWidestName = 40;
constexpr std::size_t kWidest = 24;

/// Numbers first, then names.
struct SortKey {
    double number = 0;
    std::string name;

    [[nodiscard]] bool is_before(const SortKey& other) const {
        return number != other.number ? number < other.number : comes_before(name, other.name);
    }
};

struct Entry {
    std::string key;
    SortKey order;
    std::string name;
    Cells cells;
};

bool contains(const Cells& cells, const std::string& filter) {
    return filter.empty() || std::ranges::any_of(cells, [&](const Span& cell) {
               return lower(cell.text).find(lower(filter)) != std::string::npos;
           });
}

List list_of(std::vector<Column> columns, std::vector<Entry> entries, const Order& order) {
    std::ranges::sort(entries, [&](const Entry& left, const Entry& right) {
        const Entry& a = order.reversed ? right : left;
        const Entry& b = order.reversed ? left : right;
        if (a.order.is_before(b.order) || b.order.is_before(a.order)) {
            return a.order.is_before(b.order);
        }
        return left.name != right.name ? comes_before(left.name, right.name) : left.key < right.key;
    });
    List list{std::move(columns), {}, {}};
    for (Entry& entry : entries) {
        if (contains(entry.cells, order.filter)) {
            list.keys.push_back(std::move(entry.key));
            list.rows.push_back(std::move(entry.cells));
        }
    }
    return list;
}

Style style_of_place(const std::string& place) {
    return place == "quarantined" || place == "away"  ? Style::bad
           : place == "leaving" || place == "waiting" ? Style::warning
           : place == "standby"                       ? Style::dim
                                                      : Style::normal;
}

}  // namespace

Style style_of_phase(const std::string& phase) {
    const bool is_over = phase == "succeeded" || phase == "stopped" || phase == "closed";
    return phase == "training" ? Style::good
           : phase == "failed" ? Style::bad
           : is_over           ? Style::dim
                               : Style::warning;
}

List list_of_jobs(const std::vector<Job>& jobs, const Order& order) {
    std::vector<Column> columns = {{"JOB", false, 0, kWidestName}, {"PHASE", false, 1, kWidest},
                                   {"NODES", true, 3, kWidest},    {"STEPS/S", true, 2, kWidest},
                                   {"RESTARTS", true, 5, kWidest}, {"AGE", true, 7, kWidest},
                                   {"STEP", true, 4, kWidest},     {"GOODPUT", true, 6, kWidest},
                                   {"RANKS", true, 8, kWidest},    {"", false, 9, 0}};
    std::vector<Entry> entries;
    for (const Job& job : jobs) {
        const SortKey orders[] = {{0, job.id},
                                  {0, job.phase},
                                  {-static_cast<double>(job.members), ""},
                                  {-job.step_rate, ""},
                                  {-static_cast<double>(job.restarts), ""},
                                  {-std::chrono::duration<double>(job.age).count(), ""}};
        entries.push_back({job.id,
                           orders[order.column],
                           job.id,
                           {{job.id},
                            {job.phase, style_of_phase(job.phase)},
                            {std::to_string(job.members)},
                            {rate_text(job.step_rate)},
                            {std::to_string(job.restarts)},
                            {format_age(job.age)},
                            {step_text(job.step)},
                            {goodput_text(job.goodput)},
                            {std::to_string(job.ranks)},
                            {job.text, Style::dim}}});
    }
    return list_of(std::move(columns), std::move(entries), order);
}

List list_of_nodes(const Job& job, const Order& order) {
    std::vector<Column> columns = {
        {"RANKS", true, 2, kWidest},        {"NODE", false, 0, kWidestName},
        {"PLACE", false, 1, kWidest},       {"STATE", false, 4, kWidest},
        {"STEP", true, 3, kWidest},         {"HEARD", true, 5, kWidest},
        {"ADDRESS", false, 6, kWidestName}, {"", false, 7, 0}};
    // Nodes without ranks come last.
    constexpr double kNoRank = 1e18;
    std::vector<Entry> entries;
    for (const NodeRow& node : job.nodes) {
        const SortKey orders[] = {
            {node.first_rank ? static_cast<double>(*node.first_rank) : kNoRank, ""},
            {0, node.name},
            {0, node.place},
            {0, node.state},
            {static_cast<double>(node.step), ""},
            {-std::chrono::duration<double>(node.silent).count(), ""}};
        const Style style = style_of_place(node.place);
        entries.push_back({node.name + " " + node.address + " " + node.ranks,
                           orders[order.column],
                           node.name,
                           {{node.ranks},
                            {node.name, style},
                            {node.place, style},
                            {node.state},
                            {step_text(node.step)},
                            {format_duration(node.silent),
                             node.silent >= kSilentAfter ? Style::warning : Style::normal},
                            {node.address == node.name ? "" : node.address, Style::dim},
                            {node.detail, style}}});
    }
    return list_of(std::move(columns), std::move(entries), order);
}

}  // namespace regroup::launcher::top
