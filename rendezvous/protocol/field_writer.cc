// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/field_writer.h"

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using nlohmann::json;

void FieldWriter::put(std::string_view key, std::int64_t value) {
    (*object_)[std::string(key)] = value;
}

void FieldWriter::put(std::string_view key, std::uint64_t value) {
    (*object_)[std::string(key)] = value;
}

void FieldWriter::real(std::string_view key, double value, double /*min*/) {
    (*object_)[std::string(key)] = value;
}

void FieldWriter::flag(std::string_view key, bool value, Presence presence) {
    if (is_written(presence, value)) {
        (*object_)[std::string(key)] = value;
    }
}

void FieldWriter::put_time(std::string_view key, Duration value, Duration unit, Presence presence) {
    integer(key, std::max(value, Duration::zero()) / unit, presence);
}

void FieldWriter::duration(std::string_view key, Duration value, Presence presence, Duration max) {
    put_time(key, std::min(value, max), std::chrono::milliseconds(1), presence);
}

void FieldWriter::microseconds(std::string_view key, Duration value, Duration max) {
    put_time(key, std::min(value, max), std::chrono::microseconds(1), Presence::optional);
}

void FieldWriter::name(std::string_view key, const std::string& value, Presence presence) {
    if (is_written(presence, !value.empty())) {
        (*object_)[std::string(key)] = value;
    }
}

void FieldWriter::names(std::string_view key, const std::vector<std::string>& values,
                        Presence presence) {
    if (is_written(presence, !values.empty())) {
        const auto count = static_cast<std::ptrdiff_t>(std::min(values.size(), kNamesMax));
        (*object_)[std::string(key)] = std::vector(values.begin(), values.begin() + count);
    }
}

void FieldWriter::text(std::string_view key, const std::string& value, Presence presence,
                       std::size_t bytes_max) {
    name(key, beginning_of(value, bytes_max), presence);
}

void FieldWriter::last_text(std::string_view key, const std::string& value, std::size_t bytes_max) {
    name(key, end_of(value, bytes_max));
}

FieldWriter FieldWriter::object(std::string_view key) {
    json& inner = (*object_)[std::string(key)];
    inner = json::object();
    return FieldWriter(inner);
}

FieldWriter FieldWriter::next_of(std::string_view key) {
    return FieldWriter((*object_)[std::string(key)].emplace_back(json::object()));
}

}  // namespace regroup::protocol
