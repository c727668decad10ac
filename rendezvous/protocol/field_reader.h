// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_rules.h"

namespace regroup::protocol {

/// Reads the fields of one JSON object into variables and remembers the first complaint, which
/// names the field. A field that is absent leaves its variable as it is, unless it is required.
/// `object` outlives the reader.
class FieldReader {
   public:
    static constexpr bool kReads = true;

    /// `prefix` goes before the names of the fields in complaints: "failure.".
    explicit FieldReader(const nlohmann::json& object, std::string prefix = "");

    [[nodiscard]] bool has(std::string_view key) const { return find(key) != nullptr; }
    void require(std::string_view key) { find(key, Presence::required); }

    /// A whole number within `range`.
    template <class Number>
    void integer(std::string_view key, Number& out, Presence presence = Presence::optional,
                 Range range = Range::of<Number>()) {
        if (const auto number = read_integer(key, presence, range)) {
            out = static_cast<Number>(*number);
        }
    }
    template <class Number>
    void integer(std::string_view key, std::optional<Number>& out) {
        if (has(key)) {
            integer(key, out.emplace());
        }
    }
    /// A finite number, at least `min`.
    void real(std::string_view key, double& out,
              double min = std::numeric_limits<double>::lowest());
    void flag(std::string_view key, bool& out, Presence presence = Presence::optional);
    /// A round, required.
    void round(std::string_view key, rendezvous::RoundId& out);
    /// Whole milliseconds, `max` at most.
    void duration(std::string_view key, Duration& out, Presence presence = Presence::optional,
                  Duration max = rendezvous::kWaitMax);
    /// Whole microseconds, `max` at most.
    void microseconds(std::string_view key, Duration& out, Duration max = kLifetimeMax);
    /// A name: not empty, not too long, no control characters.
    void name(std::string_view key, std::string& out, Presence presence = Presence::optional);
    /// A list of names; those after the first `count_max` are left out.
    void names(std::string_view key, std::vector<std::string>& out,
               Presence presence = Presence::optional, std::size_t count_max = kNamesMax);
    /// Text for people, of which the first or the last `bytes_max` bytes are kept.
    void text(std::string_view key, std::string& out, Presence presence = Presence::optional,
              std::size_t bytes_max = kSentenceBytesMax);
    void last_text(std::string_view key, std::string& out, std::size_t bytes_max);
    /// A value that is sent as a sentence; the text is kept unchanged.
    template <class Value>
    void words(std::string_view key, Value& out, Presence /*presence*/ = Presence::optional) {
        if (has(key)) {
            std::string words;
            text(key, words);
            out = Value(std::move(words));
        }
    }
    /// The name of an enumerator.
    template <class Enum>
    void choice(std::string_view key, Enum& out, Choices<Enum> all,
                Presence presence = Presence::optional) {
        const std::string* chosen = find_text(key, presence);
        if (chosen == nullptr) {
            return;
        }
        for (auto i = static_cast<int>(all.first); i <= static_cast<int>(all.last); ++i) {
            if (to_string(static_cast<Enum>(i)) == *chosen) {
                out = static_cast<Enum>(i);
                return;
            }
        }
        complain_of_choice(key, *chosen);
    }
    /// The fields of the object at `key`, if there is one.
    template <class Part>
    void part(std::string_view key, Part& out, Presence /*presence*/ = Presence::optional) {
        if (std::optional<FieldReader> inner = object(key)) {
            visit_fields(*inner, out);
            adopt(*inner);
        }
    }
    template <class Part>
    void part(std::string_view key, std::optional<Part>& out) {
        if (has(key)) {
            part(key, out.emplace());
        }
    }
    /// The objects in the list at `key`; those after the first `count_max` are left out.
    template <class Part>
    void parts(std::string_view key, std::vector<Part>& out, std::size_t count_max) {
        for (FieldReader& inner : objects(key, count_max)) {
            visit_fields(inner, out.emplace_back());
            adopt(inner);
        }
    }

    /// A reader of the object at `key`, if there is one.
    [[nodiscard]] std::optional<FieldReader> object(std::string_view key);
    /// Readers of the objects in the list at `key`.
    [[nodiscard]] std::vector<FieldReader> objects(std::string_view key, std::size_t count_max);
    /// The object itself, for callers that do not read it field by field.
    [[nodiscard]] const nlohmann::json& raw() const { return *object_; }
    /// The names of all fields.
    [[nodiscard]] std::vector<std::string> keys() const;

    void complain(std::string_view key, const std::string& what);
    /// Takes over the complaint of a reader that `object` or `objects` returned.
    void adopt(const FieldReader& inner);
    [[nodiscard]] const std::optional<std::string>& complaint() const { return complaint_; }

   private:
    [[nodiscard]] const nlohmann::json* find(std::string_view key) const;
    /// Complains if the field is required and missing.
    const nlohmann::json* find(std::string_view key, Presence presence);
    [[nodiscard]] const std::string* find_text(std::string_view key, Presence presence);
    [[nodiscard]] std::optional<std::int64_t> read_integer(std::string_view key, Presence presence,
                                                           Range range);
    void read_time(std::string_view key, Duration& out, Duration unit, Presence presence,
                   Duration max);
    void complain_of_choice(std::string_view key, const std::string& chosen);

    const nlohmann::json* object_;
    std::string prefix_;
    std::optional<std::string> complaint_;
};

}  // namespace regroup::protocol
