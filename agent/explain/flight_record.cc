// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/flight_record.h"

#include <algorithm>
#include <charconv>
#include <limits>
#include <map>
#include <tuple>
#include <utility>

#include <nlohmann/json.hpp>

#include "agent/explain/plain_data.h"
#include "rendezvous/json/json_text.h"

namespace regroup::agent {
namespace {

using nlohmann::json;

constexpr std::size_t kFramesMax = 8;

std::string text_of(const json& value) {
    if (value.is_string()) {
        return value.get<std::string>();
    }
    return value.is_number_integer() ? std::to_string(value.get<std::int64_t>()) : "";
}

/// PyTorch writes some numbers as texts.
std::uint64_t number_of(const json& value) {
    if (value.is_number_unsigned()) {
        return value.get<std::uint64_t>();
    }
    if (value.is_number_integer()) {
        return static_cast<std::uint64_t>(std::max<std::int64_t>(value.get<std::int64_t>(), 0));
    }
    std::uint64_t number = 0;
    if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        std::from_chars(text.data(), text.data() + text.size(), number);
    }
    return number;
}

bool is_true(const json& value) {
    return value.is_boolean() && value.get<bool>();
}

/// Of [[4, 3], [2]]: 14.
std::optional<std::uint64_t> elements_of(const json& sizes) {
    if (!sizes.is_array() || sizes.empty()) {
        return std::nullopt;
    }
    std::uint64_t sum = 0;
    for (const json& shape : sizes) {
        std::uint64_t count = 1;
        for (const json& size : shape) {
            const std::uint64_t length = number_of(size);
            count = length != 0 && count > std::numeric_limits<std::uint64_t>::max() / length
                        ? std::numeric_limits<std::uint64_t>::max()
                        : count * length;
        }
        sum += count;
    }
    return sum;
}

/// Splits "nccl:send 0->1" into back end, name and peer.
void read_name(const std::string& text, std::string& backend, RecordedOperation& operation) {
    const std::size_t colon = text.find(':');
    backend = colon == text.npos ? "" : text.substr(0, colon);
    std::string name = colon == text.npos ? text : text.substr(colon + 1);
    const std::size_t space = name.find(' ');
    if (space != name.npos) {
        const std::size_t arrow = std::min(name.find("->", space), name.find("<-", space));
        std::uint32_t peer = 0;
        if (arrow != name.npos &&
            std::from_chars(name.data() + arrow + 2, name.data() + name.size(), peer).ec ==
                std::errc{}) {
            operation.peer = peer;
        }
        name.resize(space);
    }
    operation.name = std::move(name);
}

std::vector<std::string> frames_of(const json& frames) {
    std::vector<std::string> lines;
    for (const json& frame : frames) {
        if (lines.size() == kFramesMax) {
            break;
        }
        const std::string line = std::to_string(number_of(field_of(frame, "line")));
        lines.push_back(text_of(field_of(frame, "name")) + " (" +
                        text_of(field_of(frame, "filename")) + ":" + line + ")");
    }
    return lines;
}

RecordedOperation operation_of(const json& entry, std::string& backend) {
    RecordedOperation operation;
    read_name(text_of(field_of(entry, "profiling_name")), backend, operation);
    operation.is_message = is_true(field_of(entry, "is_p2p"));
    operation.number =
        number_of(field_of(entry, operation.is_message ? "p2p_seq_id" : "collective_seq_id"));
    const json& types = field_of(entry, "input_dtypes");
    operation.type = types.is_array() && !types.empty() ? text_of(types.front()) : "";
    operation.elements = elements_of(field_of(entry, "input_sizes"));
    const std::string state = text_of(field_of(entry, "state"));
    // The state of an operation of gloo is always "scheduled"; "retired" says that it is complete.
    operation.completed = state == "completed" || is_true(field_of(entry, "retired"));
    operation.started = operation.completed || state == "started";
    if (!operation.completed) {
        operation.frames = frames_of(field_of(entry, "frames"));
    }
    return operation;
}

/// The ranks of each group, by its number. For gloo, PyTorch writes one group, without its number.
std::vector<std::uint32_t> ranks_of(const json& config) {
    const json& ranks = field_of(config, "ranks");
    if (ranks.is_string()) {
        return read_ranks(ranks.get_ref<const std::string&>());
    }
    std::vector<std::uint32_t> result;
    for (const json& rank : ranks.is_array() ? ranks : json::array()) {
        const std::uint64_t number = number_of(rank);
        if (number < kRanksMax && result.size() < kRanksMax) {
            result.push_back(static_cast<std::uint32_t>(number));
        }
    }
    return result;
}

std::size_t bytes_of(const RecordedOperation& operation) {
    std::size_t bytes = sizeof(RecordedOperation) + operation.name.size() + operation.type.size();
    for (const std::string& frame : operation.frames) {
        bytes += sizeof(std::string) + frame.size();
    }
    return bytes;
}

/// Sorts the entries of a record into groups.
class Collector {
   public:
    Result<void> add(const json& entry) {
        std::string backend;
        RecordedOperation operation = operation_of(entry, backend);
        const json& names = field_of(entry, "process_group");
        const bool named = names.is_array() && names.size() == 2;
        const std::string id = named ? text_of(names[0]) : text_of(field_of(entry, "pg_id"));
        const std::string name = named ? text_of(names[1]) : "";
        const auto [place, is_new] = places_.try_emplace({backend, id, name}, groups_.size());
        if (is_new) {
            constexpr std::size_t kOfPlace = 128;
            bytes_ +=
                sizeof(RecordedGroup) + kOfPlace + 2 * (backend.size() + id.size() + name.size());
            groups_.push_back(
                {.backend = backend, .name = name, .id = id, .ranks = {}, .operations = {}});
        }
        std::vector<RecordedOperation>& all = groups_[place->second].operations;
        bytes_ += bytes_of(operation);
        all.push_back(std::move(operation));
        if (all.size() >= 2 * kOperationsKept) {
            const auto first_kept = all.end() - static_cast<std::ptrdiff_t>(kOperationsKept);
            std::for_each(all.begin(), first_kept,
                          [&](const RecordedOperation& old) { bytes_ -= bytes_of(old); });
            all.erase(all.begin(), first_kept);
        }
        return checked();
    }

    /// The groups, with what the rest of the record says about them.
    Result<std::vector<RecordedGroup>> finish(const json& record, Recorder recorder) {
        for (RecordedGroup& group : groups_) {
            const json& config = field_of(field_of(record, "pg_config"), group.id.c_str());
            group.round = number_of(field_of(config, "round"));
            group.ranks = ranks_of(config);
            bytes_ += group.ranks.capacity() * sizeof(std::uint32_t);
            if (const Result<void> fits = checked(); !fits) {
                return fits.error();
            }
            if (recorder == Recorder::sdk && group.backend == "gloo") {
                group.backend = "cpu";  // The SDK's name; PyTorch's tools know the other one.
            }
        }
        return std::move(groups_);
    }

   private:
    [[nodiscard]] Result<void> checked() const {
        constexpr std::size_t kBytesMax = std::size_t{8} << 20U;
        if (bytes_ > kBytesMax) {
            return invalid_argument("its groups have too many operations or ranks");
        }
        return {};
    }

    std::map<std::tuple<std::string, std::string, std::string>, std::size_t> places_;
    std::vector<RecordedGroup> groups_;
    std::size_t bytes_ = 0;
};

}  // namespace

std::string_view to_string(Recorder recorder) noexcept {
    switch (recorder) {
        case Recorder::sdk:
            return "the SDK";
        case Recorder::pytorch:
            return "PyTorch";
        case Recorder::agent:
            return "the agent";
    }
    return "";
}

std::vector<std::uint32_t> read_ranks(std::string_view text) {
    std::vector<std::uint32_t> ranks;
    std::size_t at = 0;
    bool is_range = false;
    while (at < text.size() && ranks.size() < kRanksMax) {
        if (text[at] < '0' || text[at] > '9') {
            is_range = text[at] == '-';
            if (!is_range && std::string_view("[], ").find(text[at]) == std::string_view::npos) {
                break;
            }
            ++at;
            continue;
        }
        std::uint32_t rank = 0;
        const auto [end, error] =
            std::from_chars(text.data() + at, text.data() + text.size(), rank);
        if (error != std::errc{} || rank >= kRanksMax) {
            break;
        }
        for (std::uint32_t next = is_range && !ranks.empty() ? ranks.back() + 1 : rank;
             next <= rank && ranks.size() < kRanksMax; ++next) {
            ranks.push_back(next);
        }
        is_range = false;
        at = static_cast<std::size_t>(end - text.data());
    }
    return ranks;
}

Result<FlightRecord> read_flight_record(std::string_view bytes) {
    Collector collector;
    const Result<json> record =
        read_plain_data(bytes, "entries", [&](const json& entry) { return collector.add(entry); });
    if (!record) {
        return record.error();
    }
    if (!field_of(*record, "version").is_string()) {
        return invalid_argument("it has no \"version\", so it is no flight record");
    }
    FlightRecord result;
    result.recorder = record->contains("standings") ? Recorder::sdk : Recorder::pytorch;
    Result<std::vector<RecordedGroup>> groups = collector.finish(*record, result.recorder);
    if (!groups) {
        return groups.error();
    }
    result.groups = std::move(*groups);
    return result;
}

}  // namespace regroup::agent
