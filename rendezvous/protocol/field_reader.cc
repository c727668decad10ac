// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/field_reader.h"

#include <algorithm>
#include <cmath>

#include <nlohmann/json.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/text.h"

namespace regroup::protocol {

using nlohmann::json;

namespace {

template <class Unit>
std::uint64_t count_of(Duration duration) {
    return static_cast<std::uint64_t>(std::chrono::duration_cast<Unit>(duration).count());
}

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

bool FieldReader::has(std::string_view key) const {
    return find(key) != nullptr;
}

void FieldReader::require(std::string_view key) {
    if (!has(key)) {
        complain(key, "is missing");
    }
}

bool FieldReader::read_integer(std::string_view key, std::int64_t& out, std::uint64_t max,
                               int min) {
    const json* value = find(key);
    if (value == nullptr) {
        return false;
    }
    // The parser keeps non-negative numbers unsigned, so a signed one is negative.
    const bool negative = value->is_number_integer() && !value->is_number_unsigned();
    const bool fits = negative ? value->get<std::int64_t>() >= min
                               : value->is_number_unsigned() && value->get<std::uint64_t>() <= max;
    if (!fits) {
        complain(key, "must be a whole number from " + std::to_string(min) + " to " +
                          std::to_string(max));
        return false;
    }
    out = value->get<std::int64_t>();
    return true;
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

void FieldReader::flag(std::string_view key, bool& out) {
    const json* value = find(key);
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
    integer(key, number);
    out = static_cast<rendezvous::RoundId>(number);
}

void FieldReader::duration(std::string_view key, Duration& out, Duration max) {
    std::int64_t number = 0;
    if (read_integer(key, number, count_of<std::chrono::milliseconds>(max), 0)) {
        out = std::chrono::milliseconds(number);
    }
}

void FieldReader::microseconds(std::string_view key, Duration& out, Duration max) {
    std::int64_t number = 0;
    if (read_integer(key, number, count_of<std::chrono::microseconds>(max), 0)) {
        out = std::chrono::microseconds(number);
    }
}

const std::string* FieldReader::find_text(std::string_view key) {
    const json* value = find(key);
    if (value != nullptr && !value->is_string()) {
        complain(key, "must be a string");
        return nullptr;
    }
    return value == nullptr ? nullptr : &value->get_ref<const std::string&>();
}

void FieldReader::name(std::string_view key, std::string& out) {
    const std::string* text = find_text(key);
    if (text == nullptr) {
        return;
    }
    if (const std::string what = unfit_name(*text); !what.empty()) {
        complain(key, what);
        return;
    }
    out = *text;
}

void FieldReader::names(std::string_view key, std::vector<std::string>& out) {
    const json* value = find(key);
    if (value == nullptr) {
        return;
    }
    if (!value->is_array()) {
        complain(key, "must be a list of strings");
        return;
    }
    for (const json& element : *value) {
        if (out.size() == kNamesMax) {
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

void FieldReader::text(std::string_view key, std::string& out, std::size_t bytes_max) {
    if (const std::string* text = find_text(key)) {
        out = beginning_of(*text, bytes_max);
    }
}

void FieldReader::last_text(std::string_view key, std::string& out, std::size_t bytes_max) {
    if (const std::string* text = find_text(key)) {
        out = end_of(*text, bytes_max);
    }
}

std::optional<std::string> FieldReader::word(std::string_view key) {
    const std::string* text = find_text(key);
    return text == nullptr ? std::nullopt : std::optional(*text);
}

void FieldReader::complain_of_choice(std::string_view key,
                                     const std::optional<std::string>& chosen) {
    complain(key, chosen ? "has the unknown value " + quoted(*chosen) : "is missing");
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
