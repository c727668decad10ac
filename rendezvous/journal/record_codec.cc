// SPDX-License-Identifier: Apache-2.0
//
// Entries in bulk. A thousand equal reports are one table: the common report, and a column for each
// field that differs between the nodes, or a single value for a field that does not.
#include <algorithm>
#include <type_traits>
#include <utility>

#include "rendezvous/journal/entry_json.h"
#include "rendezvous/json/json_text.h"
#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/fields.h"

namespace regroup::journal {

using namespace rendezvous;  // NOLINT: the parts of an entry.
using nlohmann::json;
using protocol::FieldReader;

namespace {

// The most reports in one table, and the size of a record with more than one element. A record of
// this size is read in a few milliseconds.
constexpr std::size_t kTableRowsMax = 512;
constexpr std::size_t kRecordBytesMax = std::size_t{32} << 10U;
// A report is compared with at most this many others: nodes in one phase of a round report the
// same.
constexpr std::size_t kKindsCompared = 16;

/// The values of a column, or the single value that all rows have; nothing if that is 0.
template <class Value>
void put_column(json& table, const char* key, const std::vector<Value>& values) {
    if (std::adjacent_find(values.begin(), values.end(), std::not_equal_to<>()) != values.end()) {
        table[key] = values;
    } else if (values.front() != Value()) {
        table[key] = values.front();
    }
}

/// Reads a column of `count` cells that `put_column` has written.
template <class Number>
void get_column(FieldReader& table, const char* key, std::size_t count, std::vector<Number>& out) {
    out.assign(count, 0);
    const auto found = table.raw().find(key);
    if (found == table.raw().end()) {
        return;
    }
    const auto good = [](const json& cell) {
        return cell.is_number_integer() &&
               (cell.is_number_unsigned() ? std::in_range<Number>(cell.get<std::uint64_t>()) &&
                                                cell.get<std::uint64_t>() <= protocol::kIntegerMax
                                          : std::in_range<Number>(cell.get<std::int64_t>()));
    };
    if (found->is_array() ? found->size() == count && std::ranges::all_of(*found, good)
                          : good(*found)) {
        for (std::size_t i = 0; i < count; ++i) {
            out[i] = (found->is_array() ? (*found)[i] : *found).template get<Number>();
        }
    } else {
        table.complain(key, "is no column of numbers for its table");
    }
}

/// The nodes of a table. Their number is the number of rows.
std::vector<NodeId> nodes_in(FieldReader& table, std::size_t count_max) {
    std::vector<NodeId> nodes;
    table.names("nodes", nodes, protocol::kRequired, count_max + 1);
    if (nodes.size() > count_max) {
        table.complain("nodes", "has more than " + std::to_string(count_max) + " names");
    }
    return nodes;
}

// ---- Reports.

bool is_mere_report(const Entry& entry) {
    return entry.event && std::holds_alternative<NodeReported>(*entry.event) &&
           entry.assigned.empty();
}

struct ReportColumns {
    std::vector<std::int64_t> gaps{};  // Time since the previous report.
    std::vector<std::size_t> kind{};
    std::vector<std::uint16_t> store_port{};
    std::vector<std::uint64_t> step{};
    std::vector<std::uint64_t> held_step{};
};

/// Calls `take(key, column)` for each.
template <class Take>
void visit_columns(const Take& take, ReportColumns& columns) {
    take("gaps_us", columns.gaps);
    take("report", columns.kind);
    take("store_port", columns.store_port);
    take("step", columns.step);
    take("held_step", columns.held_step);
}

/// The index in `kinds` of the report, without the fields that have columns.
std::size_t kind_of(const NodeReport& report, std::vector<NodeReport>& kinds) {
    NodeReport kind = report;
    kind.store_port = 0;
    kind.step = 0;
    kind.held_step = 0;
    const auto near =
        kinds.end() - static_cast<std::ptrdiff_t>(std::min(kinds.size(), kKindsCompared));
    const auto found = std::find(near, kinds.end(), kind);
    if (found != kinds.end()) {
        return static_cast<std::size_t>(found - kinds.begin());
    }
    kinds.push_back(std::move(kind));
    return kinds.size() - 1;
}

json reports_to_json(std::span<const Entry> entries) {
    std::vector<NodeReport> kinds;
    std::vector<std::string> nodes;
    ReportColumns columns;
    std::int64_t last = microseconds_of(entries.front().at);
    for (const Entry& entry : entries) {
        const auto& event = std::get<NodeReported>(*entry.event);
        const std::int64_t at = microseconds_of(entry.at);
        nodes.push_back(event.node);
        columns.gaps.push_back(at - std::exchange(last, at));
        columns.kind.push_back(kind_of(event.report, kinds));
        columns.store_port.push_back(event.report.store_port);
        columns.step.push_back(event.report.step);
        columns.held_step.push_back(event.report.held_step);
    }
    json table = {{"event", "reports"},
                  {"at_us", microseconds_of(entries.front().at)},
                  {"wall_ms", entries.back().wall_ms},
                  {"nodes", std::move(nodes)}};
    protocol::FieldWriter(table).parts("reports", kinds, kinds.size());
    visit_columns([&](const char* key, const auto& column) { put_column(table, key, column); },
                  columns);
    return table;
}

Result<void> read_reports(const json& object, std::vector<Entry>& out) {
    FieldReader table(object);
    Duration at{};
    std::int64_t wall_ms = 0;
    table.require("at_us");
    table.microseconds("at_us", at);
    table.integer("wall_ms", wall_ms);
    const std::vector<NodeId> nodes = nodes_in(table, kTableRowsMax);
    std::vector<NodeReport> kinds;
    table.parts("reports", kinds, nodes.size());
    ReportColumns columns;
    visit_columns(
        [&](const char* key, auto& column) { get_column(table, key, nodes.size(), column); },
        columns);
    for (std::size_t i = 0; i < nodes.size() && !table.complaint(); ++i) {
        if (columns.kind[i] >= kinds.size()) {
            table.complain("report", "is none of the table's reports");
            break;
        }
        if (columns.gaps[i] < 0 ||
            columns.gaps[i] > microseconds_of(Instant(protocol::kLifetimeMax - at))) {
            table.complain("gaps_us", "has a time that is no later one of a job");
            break;
        }
        at += std::chrono::microseconds(columns.gaps[i]);
        NodeReported event{nodes[i], kinds[columns.kind[i]]};
        event.report.store_port = columns.store_port[i];
        event.report.step = columns.step[i];
        event.report.held_step = columns.held_step[i];
        out.push_back({Instant(at), wall_ms, std::move(event), {}});
    }
    return table.complaint() ? Result<void>(malformed(*table.complaint())) : Result<void>();
}

Result<void> read_element(const json& element, std::vector<Entry>& out) {
    const bool is_table =
        element.is_object() && element.contains("event") && element["event"] == "reports";
    if (is_table) {
        return read_reports(element, out);
    }
    Result<Entry> entry = entry_of(element);
    if (!entry) {
        return entry.error();
    }
    out.push_back(std::move(*entry));
    return {};
}

// ---- Assignments.

/// The part of an assignment that is equal for all nodes of a round.
Assignment common_part(Assignment assignment) {
    assignment.group_rank = 0;
    assignment.first_rank = 0;
    assignment.role_first_rank = 0;
    return assignment;
}

json assigned_to_json(std::span<const Assigned> assigned) {
    json table = json::object();
    if (assigned.size() == 1) {
        table["node"] = assigned.front().node;
        protocol::write(table, assigned.front().assignment);
        return table;
    }
    protocol::write(table, assigned.front().assignment);
    std::vector<std::string> nodes;
    std::vector<std::uint32_t> group_rank;
    std::vector<std::uint32_t> first_rank;
    std::vector<std::uint32_t> role_first_rank;
    for (const Assigned& one : assigned) {
        nodes.push_back(one.node);
        group_rank.push_back(one.assignment.group_rank);
        first_rank.push_back(one.assignment.first_rank);
        role_first_rank.push_back(one.assignment.role_first_rank);
    }
    table["nodes"] = std::move(nodes);
    table["ranks"] = json::object();
    put_column(table["ranks"], "group", group_rank);
    put_column(table["ranks"], "first", first_rank);
    if (role_first_rank != first_rank) {
        table["ranks"]["by_role"] = true;
        put_column(table["ranks"], "role_first", role_first_rank);
    }
    return table;
}

void read_assigned_table(FieldReader& table, std::vector<Assigned>& out) {
    Assignment common;
    visit_fields(table, common);
    const std::vector<NodeId> nodes = nodes_in(table, kNodesMax);
    table.require("ranks");
    std::optional<FieldReader> ranks = table.object("ranks");
    if (!ranks) {
        return;
    }
    std::vector<std::uint32_t> group;
    std::vector<std::uint32_t> first;
    std::vector<std::uint32_t> role_first;
    get_column(*ranks, "group", nodes.size(), group);
    get_column(*ranks, "first", nodes.size(), first);
    get_column(*ranks, "role_first", nodes.size(), role_first);
    bool by_role = false;
    ranks->flag("by_role", by_role);
    table.adopt(*ranks);
    for (std::size_t i = 0; i < nodes.size() && !table.complaint(); ++i) {
        if (first[i] >= common.world_size) {
            table.complain("ranks", "has one that is no rank of the world");
            break;
        }
        Assignment assignment = common;
        assignment.group_rank = group[i];
        assignment.first_rank = first[i];
        assignment.role_first_rank = by_role ? role_first[i] : first[i];
        out.push_back({nodes[i], std::move(assignment)});
    }
}

}  // namespace

json to_json(const std::vector<Assigned>& assigned) {
    json tables = json::array();
    const std::span all(assigned);
    for (std::size_t begin = 0; begin < all.size();) {
        std::size_t end = begin + 1;
        const Assignment common = common_part(all[begin].assignment);
        while (end < all.size() && common_part(all[end].assignment) == common) {
            ++end;
        }
        tables.push_back(assigned_to_json(all.subspan(begin, end - begin)));
        begin = end;
    }
    return tables;
}

std::vector<std::string> to_records(std::span<const Entry> entries) {
    std::vector<std::string> records;
    std::string open;  // The elements of the record that is being made.
    std::size_t elements = 0;
    const auto close = [&] {
        if (elements > 0) {
            records.push_back(elements == 1 ? std::move(open) : "[" + open + "]");
        }
        open.clear();
        elements = 0;
    };
    for (std::size_t begin = 0; begin < entries.size();) {
        std::size_t end = begin + 1;
        if (is_mere_report(entries[begin])) {
            while (end < entries.size() && end - begin < kTableRowsMax &&
                   is_mere_report(entries[end])) {
                ++end;
            }
        }
        const std::string element =
            end - begin == 1
                ? encode(entries[begin])
                : ascii_json_text(reports_to_json(entries.subspan(begin, end - begin)));
        if (open.size() + element.size() > kRecordBytesMax) {
            close();
        }
        open += (elements++ > 0 ? "," : "") + element;
        begin = end;
    }
    close();
    return records;
}

Result<std::vector<Entry>> decode_record(std::string_view record) {
    const json value = parse_json(record);
    std::vector<Entry> entries;
    const std::span<const json> elements =
        value.is_array() ? std::span<const json>(value.get_ref<const json::array_t&>())
                         : std::span<const json>(&value, 1);
    for (const json& element : elements) {
        if (const Result<void> read = read_element(element, entries); !read) {
            return read.error();
        }
    }
    return entries;
}

void read_assigned(FieldReader& entry, std::vector<Assigned>& out) {
    for (FieldReader& table : entry.objects("assigned", kNodesMax)) {
        if (table.has("nodes")) {
            read_assigned_table(table, out);
        } else {
            Assigned& assigned = out.emplace_back();
            table.name("node", assigned.node, protocol::kRequired);
            visit_fields(table, assigned.assignment);
        }
        entry.adopt(table);
    }
}

}  // namespace regroup::journal
