// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/flight_recorder.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace regroup {
namespace {

/// `text` as a JSON string.
std::string quoted(std::string_view text) {
    constexpr char kHex[] = "0123456789abcdef";
    std::string result = "\"";
    for (const char c : text) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') {
            result += '\\';
            result += c;
        } else if (byte < 0x20) {
            result += "\\u00";
            result += kHex[byte >> 4U];
            result += kHex[byte & 15U];
        } else {
            result += c;
        }
    }
    return result + "\"";
}

/// The name that PyTorch prints for a type.
std::string_view torch_name(DType dtype) {
    switch (dtype) {
        case DType::float32:
            return "Float";
        case DType::float64:
            return "Double";
        case DType::int32:
            return "Int";
        case DType::int64:
            return "Long";
        case DType::uint8:
            return "Byte";
        case DType::int8:
            return "Char";
        case DType::uint32:
            return "UInt32";
        case DType::uint64:
            return "UInt64";
        case DType::float16:
            return "Half";
        case DType::bfloat16:
            return "BFloat16";
        case DType::float8_e4m3fn:
            return "Float8_e4m3fn";
        case DType::float8_e5m2:
            return "Float8_e5m2";
    }
    return "";
}

/// Nanoseconds since 1970, for a time of the steady clock.
std::int64_t wall_time(Instant at) {
    const auto age = SteadyClock().now() - at;
    const auto now = std::chrono::system_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now - age).count();
}

std::string time_or_null(const std::optional<Instant>& at) {
    return at ? std::to_string(wall_time(*at)) : "null";
}

std::string list(const std::vector<std::uint32_t>& ranks) {
    std::string text = "[";
    for (const std::uint32_t rank : ranks) {
        text += (text.size() > 1 ? ", " : "") + std::to_string(rank);
    }
    return text + "]";
}

}  // namespace

std::uint32_t FlightRecorder::add(Group group) {
    const std::lock_guard lock(mutex_);
    if (groups_.size() == kGroupsMax) {
        groups_.pop_front();
    }
    groups_.push_back({.number = group_count_, .group = std::move(group)});
    return group_count_++;
}

FlightRecorder::Recorded* FlightRecorder::group_of(std::uint32_t number) {
    if (groups_.empty() || number < groups_.front().number) {
        return nullptr;
    }
    return &groups_[number - groups_.front().number];
}

FlightRecorder::Entry* FlightRecorder::find(std::uint64_t entry) {
    Entry* const place = entry == 0 ? nullptr : &entries_[entry % kEntriesMax];
    return place != nullptr && place->number == entry ? place : nullptr;
}

std::uint64_t FlightRecorder::issued(std::uint32_t group, const Operation& operation, Instant at) {
    const std::lock_guard lock(mutex_);
    entries_.resize(kEntriesMax);
    const std::uint64_t number = ++entry_count_;
    entries_[number % kEntriesMax] = {
        .number = number, .group = group, .operation = operation, .issued_at = at};
    Recorded* const recorded = group_of(group);
    if (recorded != nullptr && !operation.is_message) {
        recorded->status.issued = operation.number;
    }
    return number;
}

void FlightRecorder::started(std::uint64_t entry, Instant at) {
    const std::lock_guard lock(mutex_);
    if (Entry* const found = find(entry)) {
        found->started_at = at;
        Recorded* const recorded = group_of(found->group);
        if (recorded != nullptr && !found->operation.is_message) {
            recorded->status.started = found->operation.number;
        }
    }
}

void FlightRecorder::completed(std::uint64_t entry, Instant at) {
    const std::lock_guard lock(mutex_);
    if (Entry* const found = find(entry)) {
        found->completed_at = at;
        Recorded* const recorded = group_of(found->group);
        if (recorded != nullptr && !found->operation.is_message) {
            recorded->status.completed = found->operation.number;
        }
    }
}

void FlightRecorder::note_standing(std::uint32_t group, std::uint32_t rank, std::string text) {
    const std::lock_guard lock(mutex_);
    if (Recorded* const recorded = group_of(group)) {
        recorded->status.standings[rank] = std::move(text);
    }
}

void FlightRecorder::write_entry(std::string& out, const Entry& entry) const {
    const Operation& operation = entry.operation;
    const std::uint32_t first = groups_.empty() ? 0 : groups_.front().number;
    const Group none;
    const Group& group = entry.group < first ? none : groups_[entry.group - first].group;
    std::string name = group.backend + ":" + operation.name;
    if (operation.is_message) {
        name += " " + std::to_string(group.rank) + (operation.is_send ? "->" : "<-") +
                std::to_string(operation.peer);
    }
    const std::string number = std::to_string(operation.number);
    const std::string dtype = "[" + quoted(torch_name(operation.dtype)) + "]";
    const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(operation.timeout);
    const bool done = entry.completed_at.has_value();
    out += "{\"record_id\": " + std::to_string(entry.number - 1) +
           ", \"pg_id\": " + std::to_string(entry.group) + ", \"process_group\": [" +
           quoted(std::to_string(entry.group)) + ", " + quoted(group.name) +
           "], \"collective_seq_id\": " + (operation.is_message ? "0" : number) +
           ", \"p2p_seq_id\": " + (operation.is_message ? number : "0") + ", \"op_id\": " + number +
           ", \"profiling_name\": " + quoted(name) +
           ", \"time_created_ns\": " + std::to_string(wall_time(entry.issued_at)) +
           ", \"time_discovered_started_ns\": " + time_or_null(entry.started_at) +
           ", \"time_discovered_completed_ns\": " + time_or_null(entry.completed_at) +
           ", \"input_sizes\": [[" + std::to_string(operation.input_count) +
           "]], \"input_dtypes\": " + dtype + ", \"output_sizes\": [[" +
           std::to_string(operation.output_count) + "]], \"output_dtypes\": " + dtype +
           ", \"state\": " +
           quoted(done               ? "completed"
                  : entry.started_at ? "started"
                                     : "scheduled") +
           ", \"retired\": " + (done ? "true" : "false") +
           ", \"timeout_ms\": " + std::to_string(timeout.count()) +
           ", \"is_p2p\": " + (operation.is_message ? "true" : "false") + ", \"frames\": []}";
}

std::string FlightRecorder::json() const {
    const std::lock_guard lock(mutex_);
    std::string config;
    std::string status;
    std::string standings;
    for (const auto& [number, group, state] : groups_) {
        const std::string key = quoted(std::to_string(number)) + ": ";
        const std::string comma = config.empty() ? "" : ", ";
        config += comma + key + "{\"name\": " + quoted(std::to_string(number)) +
                  ", \"desc\": " + quoted(group.name) +
                  ", \"ranks\": " + quoted(list(group.ranks)) + "}";
        status += comma + key + "{\"last_enqueued_collective\": " + std::to_string(state.issued) +
                  ", \"last_started_collective\": " + std::to_string(state.started) +
                  ", \"last_completed_collective\": " + std::to_string(state.completed) + "}";
        std::string ranks;
        for (const auto& [rank, text] : state.standings) {
            ranks +=
                (ranks.empty() ? "" : ", ") + quoted(std::to_string(rank)) + ": " + quoted(text);
        }
        standings += comma + key + "{" + ranks + "}";
    }
    std::string out = "{\"version\": \"2.10\", \"pg_config\": {" + config + "}, \"pg_status\": {" +
                      status + "}, \"standings\": {" + standings + "}, \"entries\": [";
    const std::uint64_t kept = std::min<std::uint64_t>(entry_count_, kEntriesMax);
    for (std::uint64_t number = entry_count_ - kept + 1; number <= entry_count_; ++number) {
        out += number == entry_count_ - kept + 1 ? "\n" : ",\n";
        write_entry(out, entries_[number % kEntriesMax]);
    }
    return out + "\n]}\n";
}

FlightRecorder& flight_recorder() {
    static auto* const recorder = new FlightRecorder();
    return *recorder;
}

}  // namespace regroup
