// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/field_reader.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using nlohmann::json;

namespace {

std::string unfit_name(const std::string& text) {
    if (text.empty()) {
        return "must not be empty";
    }
    if (text.size() > kNameBytesMax) {
        return "is longer than " + std::to_string(kNameBytesMax) + " bytes";
    }
    return has_control_characters(text) ? "must not have control characters" : "";
}

}  // namespace

FieldReader::FieldReader(const json& object, std::string prefix)
    : object_(&object), prefix_(std::move(prefix)) {}

const json* FieldReader::find(std::string_view key) const {
    const auto found = object_->find(std::string(key));
    return found == object_->end() ? nullptr : &*found;
}

const json* FieldReader::find(std::string_view key, Presence presence) {
    const json* value = find(key);
    if (value == nullptr && presence == Presence::required) {
        complain(key, "is missing");
    }
    return value;
}

std::optional<std::int64_t> FieldReader::read_integer(std::string_view key, Presence presence,
                                                      Range range) {
    const json* value = find(key, presence);
    if (value == nullptr) {
        return std::nullopt;
    }
    // The parser keeps non-negative numbers unsigned, so a signed one is negative.
    const bool negative = value->is_number_integer() && !value->is_number_unsigned();
    const bool fits = negative
                          ? value->get<std::int64_t>() >= range.min
                          : value->is_number_unsigned() && value->get<std::uint64_t>() <= range.max;
    if (!fits) {
        complain(key, "must be a whole number from " + std::to_string(range.min) + " to " +
                          std::to_string(range.max));
        return std::nullopt;
    }
    return value->get<std::int64_t>();
}

void FieldReader::real(std::string_view key, double& out, double min) {
    const json* value = find(key);
    if (value == nullptr) {
        return;
    }
    const double number = value->is_number() ? value->get<double>() : NAN;
    if (!std::isfinite(number) || number < min) {
        complain(key,
                 min < 0 ? "must be a finite number" : "must be a finite number of at least 0");
        return;
    }
    out = number;
}

void FieldReader::flag(std::string_view key, bool& out, Presence presence) {
    const json* value = find(key, presence);
    if (value == nullptr) {
        return;
    }
    if (!value->is_boolean()) {
        complain(key, "must be true or false");
        return;
    }
    out = value->get<bool>();
}

void FieldReader::round(std::string_view key, rendezvous::RoundId& out) {
    std::uint64_t number = rendezvous::number(out);
    integer(key, number, Presence::required);
    out = static_cast<rendezvous::RoundId>(number);
}

void FieldReader::read_time(std::string_view key, Duration& out, Duration unit, Presence presence,
                            Duration max) {
    if (const auto number = read_integer(key, presence, {static_cast<std::uint64_t>(max / unit)})) {
        out = *number * unit;
    }
}

void FieldReader::duration(std::string_view key, Duration& out, Presence presence, Duration max) {
    read_time(key, out, std::chrono::milliseconds(1), presence, max);
}

void FieldReader::microseconds(std::string_view key, Duration& out, Duration max) {
    read_time(key, out, std::chrono::microseconds(1), Presence::optional, max);
}

const std::string* FieldReader::find_text(std::string_view key, Presence presence) {
    const json* value = find(key, presence);
    if (value != nullptr && !value->is_string()) {
        complain(key, "must be a string");
        return nullptr;
    }
    return value == nullptr ? nullptr : &value->get_ref<const std::string&>();
}

void FieldReader::name(std::string_view key, std::string& out, Presence presence) {
    const std::string* text = find_text(key, presence);
    if (text == nullptr) {
        return;
    }
    if (const std::string what = unfit_name(*text); !what.empty()) {
        complain(key, what);
        return;
    }
    out = *text;
}

void FieldReader::names(std::string_view key, std::vector<std::string>& out, Presence presence,
                        std::size_t count_max) {
    const json* value = find(key, presence);
    if (value == nullptr) {
        return;
    }
    if (!value->is_array()) {
        complain(key, "must be a list of strings");
        return;
    }
    for (const json& element : *value) {
        if (out.size() == count_max) {
            return;
        }
        if (!element.is_string()) {
            complain(key, "must be a list of strings");
            return;
        }
        const auto& text = element.get_ref<const std::string&>();
        if (const std::string what = unfit_name(text); !what.empty()) {
            complain(key, "has an element that " + what);
            return;
        }
        out.push_back(text);
    }
}

void FieldReader::text(std::string_view key, std::string& out, Presence presence,
                       std::size_t bytes_max) {
    if (const std::string* text = find_text(key, presence)) {
        out = beginning_of(*text, bytes_max);
    }
}

void FieldReader::last_text(std::string_view key, std::string& out, std::size_t bytes_max) {
    if (const std::string* text = find_text(key, Presence::optional)) {
        out = end_of(*text, bytes_max);
    }
}

void FieldReader::complain_of_choice(std::string_view key, const std::string& chosen) {
    complain(key, "has the unknown value " + quoted(chosen));
}

std::optional<FieldReader> FieldReader::object(std::string_view key) {
    const json* value = find(key);
    if (value == nullptr) {
        return std::nullopt;
    }
    if (!value->is_object()) {
        complain(key, "must be an object");
        return std::nullopt;
    }
    return FieldReader(*value, prefix_ + std::string(key) + ".");
}

std::vector<FieldReader> FieldReader::objects(std::string_view key, std::size_t count_max) {
    std::vector<FieldReader> readers;
    const json* value = find(key);
    if (value == nullptr) {
        return readers;
    }
    if (!value->is_array()) {
        complain(key, "must be a list of objects");
        return readers;
    }
    for (const json& element : *value) {
        if (readers.size() == count_max) {
            break;
        }
        if (!element.is_object()) {
            complain(key, "must be a list of objects");
            break;
        }
        readers.emplace_back(
            element, prefix_ + std::string(key) + "[" + std::to_string(readers.size()) + "].");
    }
    return readers;
}

std::vector<std::string> FieldReader::keys() const {
    std::vector<std::string> keys;
    for (const auto& [key, value] : object_->items()) {
        keys.push_back(key);
    }
    return keys;
}

void FieldReader::complain(std::string_view key, const std::string& what) {
    if (!complaint_) {
        complaint_ = "field '" + prefix_ + std::string(key) + "' " + what;
    }
}

void FieldReader::adopt(const FieldReader& inner) {
    if (!complaint_) {
        complaint_ = inner.complaint_;
    }
}

}  // namespace regroup::protocol
