// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/field_rules.h"

namespace regroup::protocol {

/// Writes the fields of one JSON object, as FieldReader's functions of the same names read them:
/// text, lists and times are cut to their limits, and numbers to kIntegerMax. Names are written as
/// they are. `object` outlives the writer.
class FieldWriter {
   public:
    static constexpr bool kReads = false;

    explicit FieldWriter(nlohmann::json& object) : object_(&object) {}

    template <std::integral Number>
    void integer(std::string_view key, Number value, Presence presence = Presence::optional,
                 Range /*range*/ = {}) {
        if (is_written(presence, value != 0)) {
            if constexpr (std::signed_integral<Number>) {
                put(key, std::int64_t{value});
            } else {
                put(key, std::min<std::uint64_t>(value, kIntegerMax));
            }
        }
    }
    template <std::integral Number>
    void integer(std::string_view key, const std::optional<Number>& value) {
        integer(key, value.value_or(0), unless(!value));
    }
    void real(std::string_view key, double value, double min = 0);
    void flag(std::string_view key, bool value, Presence presence = Presence::optional);
    void round(std::string_view key, rendezvous::RoundId round) {
        integer(key, number(round), Presence::required);
    }
    void duration(std::string_view key, Duration value, Presence presence = Presence::optional,
                  Duration max = rendezvous::kWaitMax);
    void microseconds(std::string_view key, Duration value, Duration max = kLifetimeMax);
    void name(std::string_view key, const std::string& value,
              Presence presence = Presence::optional);
    void names(std::string_view key, const std::vector<std::string>& values,
               Presence presence = Presence::optional);
    void text(std::string_view key, const std::string& value,
              Presence presence = Presence::optional, std::size_t bytes_max = kSentenceBytesMax);
    void last_text(std::string_view key, const std::string& value, std::size_t bytes_max);
    template <class Value>
    void words(std::string_view key, const Value& value, Presence presence = Presence::optional) {
        text(key, describe(value), presence);
    }
    template <class Enum>
    void choice(std::string_view key, Enum value, Choices<Enum> /*all*/,
                Presence presence = Presence::optional) {
        name(key, std::string(to_string(value)),
             presence == Presence::optional ? unless(value == Enum()) : presence);
    }
    template <class Part>
    void part(std::string_view key, const Part& part, Presence presence = Presence::written) {
        if (is_written(presence, true)) {
            FieldWriter inner = object(key);
            visit_fields(inner, part);
        }
    }
    template <class Part>
    void part(std::string_view key, const std::optional<Part>& value) {
        if (value) {
            part(key, *value);
        }
    }
    template <class Part>
    void parts(std::string_view key, const std::vector<Part>& all, std::size_t count_max) {
        for (std::size_t i = 0; i < std::min(all.size(), count_max); ++i) {
            FieldWriter inner = next_of(key);
            visit_fields(inner, all[i]);
        }
    }
    /// A writer of the object at `key`.
    [[nodiscard]] FieldWriter object(std::string_view key);

   private:
    [[nodiscard]] static bool is_written(Presence presence, bool has_value) noexcept {
        return presence == Presence::optional ? has_value : presence != Presence::left_out;
    }
    void put(std::string_view key, std::int64_t value);
    void put(std::string_view key, std::uint64_t value);
    void put_time(std::string_view key, Duration value, Duration unit, Presence presence);
    /// A writer of one more object in the list at `key`.
    [[nodiscard]] FieldWriter next_of(std::string_view key);

    nlohmann::json* object_;
};

}  // namespace regroup::protocol
