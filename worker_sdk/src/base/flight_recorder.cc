// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/base/flight_recorder.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <utility>

namespace regroup {
namespace {

/// `text` as a JSON string.
std::string json_string(std::string_view text) {
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
    constexpr std::array<std::string_view, 12> kNames{
        "Float",  "Double", "Int",  "Long",     "Byte",          "Char",
        "UInt32", "UInt64", "Half", "BFloat16", "Float8_e4m3fn", "Float8_e5m2"};
    const auto number = static_cast<std::size_t>(dtype);
    return number < kNames.size() ? kNames[number] : "";
}

using Nanoseconds = std::chrono::nanoseconds;

/// The difference to add to a time of the steady clock to get nanoseconds since 1970.
Nanoseconds offset_to_wall_time() {
    const auto wall = std::chrono::system_clock::now().time_since_epoch();
    return wall - SteadyClock().now().time_since_epoch();
}

std::string time_text(Instant at, Nanoseconds offset) {
    return std::to_string((Nanoseconds(at.time_since_epoch()) + offset).count());
}

std::string time_or_null(const std::optional<Instant>& at, Nanoseconds offset) {
    return at ? time_text(*at, offset) : "null";
}

std::uint64_t ticks_of(Instant at) noexcept {
    return static_cast<std::uint64_t>(at.time_since_epoch().count());
}

Instant instant_of(std::uint64_t ticks) noexcept {
    return Instant(Instant::duration(static_cast<std::int64_t>(ticks)));
}

/// The last collectives of a group, by state; -1 for none.
struct Status {
    std::int64_t issued = -1;
    std::int64_t started = -1;
    std::int64_t completed = -1;

    void note(const FlightRecorder::Operation& operation, bool is_started, bool is_completed) {
        if (operation.is_message) {
            return;
        }
        const auto number = static_cast<std::int64_t>(operation.number);
        issued = std::max(issued, number);
        started = is_started ? std::max(started, number) : started;
        completed = is_completed ? std::max(completed, number) : completed;
    }
    [[nodiscard]] std::string json() const {
        return "{\"last_enqueued_collective\": " + std::to_string(issued) +
               ", \"last_started_collective\": " + std::to_string(started) +
               ", \"last_completed_collective\": " + std::to_string(completed) + "}";
    }
};

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
    group.round = round_;
    groups_.push_back({.number = group_count_, .group = std::move(group)});
    return group_count_++;
}

std::uint64_t FlightRecorder::issued(std::uint32_t group, const Operation& operation, Instant at) {
    const std::uint64_t number = entry_count_.fetch_add(1, std::memory_order_relaxed) + 1;
    Slot& slot = slot_of(number);
    slot.number.store(0, std::memory_order_relaxed);
    const auto put = [&slot](Word word, std::uint64_t value) {
        slot.words[word].store(value, std::memory_order_release);
    };
    put(kName, reinterpret_cast<std::uintptr_t>(operation.name));
    put(kGroup, group);
    put(kNumber, operation.number);
    put(kFlags, (operation.is_message ? 1U : 0U) | (operation.is_send ? 2U : 0U));
    put(kPeer, operation.peer);
    put(kInputCount, operation.input_count);
    put(kOutputCount, operation.output_count);
    put(kDType, static_cast<std::uint64_t>(operation.dtype));
    put(kTimeout, static_cast<std::uint64_t>(operation.timeout.count()));
    put(kIssuedAt, ticks_of(at));
    put(kStartedAt, 0);
    put(kCompletedAt, 0);
    slot.number.store(number, std::memory_order_release);
    return number;
}

void FlightRecorder::set_time(std::uint64_t entry, Word word, Instant at) noexcept {
    Slot& slot = slot_of(entry);
    if (slot.number.load(std::memory_order_relaxed) == entry) {
        slot.words[word].store(ticks_of(at), std::memory_order_release);
    }
}

void FlightRecorder::started(std::uint64_t entry, Instant at) {
    set_time(entry, kStartedAt, at);
}

void FlightRecorder::completed(std::uint64_t entry, Instant at) {
    set_time(entry, kCompletedAt, at);
}

void FlightRecorder::note_standing(std::uint32_t group, std::uint32_t rank, std::string text) {
    const std::lock_guard lock(mutex_);
    if (!groups_.empty() && group >= groups_.front().number) {
        groups_[group - groups_.front().number].standings[rank] = std::move(text);
    }
}

/// Empty if the entry is being overwritten.
std::optional<FlightRecorder::Entry> FlightRecorder::read(std::uint64_t number) const {
    const Slot& slot = slots_[number % kEntriesMax];
    if (slot.number.load(std::memory_order_acquire) != number) {
        return std::nullopt;
    }
    std::array<std::uint64_t, kWords> words{};
    for (std::size_t word = 0; word < kWords; ++word) {
        words[word] = slot.words[word].load(std::memory_order_acquire);
    }
    if (slot.number.load(std::memory_order_relaxed) != number) {
        return std::nullopt;
    }
    const auto time = [&](Word word) {
        return words[word] == 0 ? std::nullopt : std::optional(instant_of(words[word]));
    };
    return Entry{.number = number,
                 .group = static_cast<std::uint32_t>(words[kGroup]),
                 .operation = {.name = reinterpret_cast<const char*>(words[kName]),
                               .number = words[kNumber],
                               .is_message = (words[kFlags] & 1U) != 0,
                               .is_send = (words[kFlags] & 2U) != 0,
                               .peer = static_cast<std::uint32_t>(words[kPeer]),
                               .input_count = words[kInputCount],
                               .output_count = words[kOutputCount],
                               .dtype = static_cast<DType>(words[kDType]),
                               .timeout = Duration(static_cast<std::int64_t>(words[kTimeout]))},
                 .issued_at = instant_of(words[kIssuedAt]),
                 .started_at = time(kStartedAt),
                 .completed_at = time(kCompletedAt)};
}

/// Oldest first.
std::vector<FlightRecorder::Entry> FlightRecorder::read_all() const {
    std::vector<Entry> entries;
    const std::uint64_t last = entry_count_.load();
    const std::uint64_t kept = std::min<std::uint64_t>(last, kEntriesMax);
    for (std::uint64_t number = last - kept + 1; number <= last; ++number) {
        if (auto entry = read(number)) {
            entries.push_back(*entry);
        }
    }
    return entries;
}

void FlightRecorder::write_entry(std::string& out, const Entry& entry,
                                 std::chrono::nanoseconds wall_offset) const {
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
    const std::string dtype = "[" + json_string(torch_name(operation.dtype)) + "]";
    const auto timeout = std::chrono::duration_cast<std::chrono::milliseconds>(operation.timeout);
    const bool done = entry.completed_at.has_value();
    out += "{\"record_id\": " + std::to_string(entry.number - 1) +
           ", \"pg_id\": " + std::to_string(entry.group) + ", \"process_group\": [" +
           json_string(std::to_string(entry.group)) + ", " + json_string(group.name) +
           "], \"collective_seq_id\": " + (operation.is_message ? "0" : number) +
           ", \"p2p_seq_id\": " + (operation.is_message ? number : "0") + ", \"op_id\": " + number +
           ", \"profiling_name\": " + json_string(name) +
           ", \"time_created_ns\": " + time_text(entry.issued_at, wall_offset) +
           ", \"time_discovered_started_ns\": " + time_or_null(entry.started_at, wall_offset) +
           ", \"time_discovered_completed_ns\": " + time_or_null(entry.completed_at, wall_offset) +
           ", \"input_sizes\": [[" + std::to_string(operation.input_count) +
           "]], \"input_dtypes\": " + dtype + ", \"output_sizes\": [[" +
           std::to_string(operation.output_count) + "]], \"output_dtypes\": " + dtype +
           ", \"state\": " +
           json_string(done               ? "completed"
                       : entry.started_at ? "started"
                                          : "scheduled") +
           ", \"retired\": " + (done ? "true" : "false") +
           ", \"timeout_ms\": " + std::to_string(timeout.count()) +
           ", \"is_p2p\": " + (operation.is_message ? "true" : "false") + ", \"frames\": []}";
}

bool FlightRecorder::has_groups() const {
    const std::lock_guard lock(mutex_);
    return !groups_.empty();
}

std::string FlightRecorder::json() const {
    const std::lock_guard lock(mutex_);
    const std::vector<Entry> entries = read_all();
    const Nanoseconds wall_offset = offset_to_wall_time();
    std::map<std::uint32_t, Status> last;
    for (const Entry& entry : entries) {
        last[entry.group].note(entry.operation, entry.started_at.has_value(),
                               entry.completed_at.has_value());
    }
    std::string config;
    std::string status;
    std::string standings;
    for (const auto& [number, group, heard] : groups_) {
        const std::string comma = config.empty() ? "" : ", ";
        const std::string key = comma + json_string(std::to_string(number)) + ": ";
        config += key + "{\"name\": " + json_string(std::to_string(number)) +
                  ", \"desc\": " + json_string(group.name) +
                  ", \"ranks\": " + json_string(list(group.ranks)) +
                  ", \"round\": " + std::to_string(group.round) + "}";
        status += key + last[number].json();
        std::string ranks;
        for (const auto& [rank, text] : heard) {
            ranks += (ranks.empty() ? "" : ", ") + json_string(std::to_string(rank)) + ": " +
                     json_string(text);
        }
        standings += key + "{" + ranks + "}";
    }
    std::string out = "{\"version\": \"2.10\", \"pg_config\": {" + config + "}, \"pg_status\": {" +
                      status + "}, \"standings\": {" + standings + "}, \"entries\": [";
    for (const Entry& entry : entries) {
        out += entry.number == entries.front().number ? "\n" : ",\n";
        write_entry(out, entry, wall_offset);
    }
    return out + "\n]}\n";
}

FlightRecorder& flight_recorder() {
    static auto* const recorder = new FlightRecorder();
    return *recorder;
}

}  // namespace regroup
