// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include <nlohmann/json_fwd.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"

namespace regroup::protocol {

/// The longest lifetime of a job. Every instant on its timeline fits 64 bits in nanoseconds, and so
/// does such an instant plus any wait.
inline constexpr Duration kLifetimeMax = std::chrono::hours(24 * 365 * 30);

/// The largest whole number in a message: 53 bits, which any JSON reader keeps exactly.
inline constexpr std::uint64_t kIntegerMax = std::uint64_t{1} << 53U;

/// Reads the fields of one JSON object into variables and remembers the first complaint, which
/// names the field. A field that is absent leaves its variable as it is, unless it is `require`d.
/// `object` outlives the reader.
class FieldReader {
   public:
    /// `prefix` goes before the names of the fields in complaints: "failure.".
    explicit FieldReader(const nlohmann::json& object, std::string prefix = "");

    [[nodiscard]] bool has(std::string_view key) const;
    void require(std::string_view key);

    /// A whole number from `min` (0 or -1) to `max`.
    template <class Number>
    void integer(std::string_view key, Number& out,
                 std::uint64_t max = std::numeric_limits<Number>::max(), int min = 0) {
        std::int64_t number = 0;
        if (read_integer(key, number, std::min<std::uint64_t>(max, kIntegerMax), min)) {
            out = static_cast<Number>(number);
        }
    }
    /// A finite number, at least `min`.
    void real(std::string_view key, double& out,
              double min = std::numeric_limits<double>::lowest());
    void flag(std::string_view key, bool& out);
    void round(std::string_view key, rendezvous::RoundId& out);
    /// Whole milliseconds, `max` at most.
    void duration(std::string_view key, Duration& out, Duration max = rendezvous::kWaitMax);
    /// Whole microseconds, `max` at most.
    void microseconds(std::string_view key, Duration& out, Duration max = kLifetimeMax);
    /// A name: not empty, not too long, no control characters.
    void name(std::string_view key, std::string& out);
    /// A list of names; those after the first kNamesMax are left out.
    void names(std::string_view key, std::vector<std::string>& out);
    /// Text for people, of which the first or the last `bytes_max` bytes are kept.
    void text(std::string_view key, std::string& out, std::size_t bytes_max);
    void last_text(std::string_view key, std::string& out, std::size_t bytes_max);
    /// The name of one of `all`, required.
    template <class Enum, std::size_t N>
    void choice(std::string_view key, Enum& out, const Enum (&all)[N]) {
        const std::optional<std::string> chosen = word(key);
        for (const Enum candidate : all) {
            if (chosen && to_string(candidate) == *chosen) {
                out = candidate;
                return;
            }
        }
        complain_of_choice(key, chosen);
    }
    /// The fields of the object at `key`, if there is one.
    [[nodiscard]] std::optional<FieldReader> object(std::string_view key);

    /// The elements of the list of objects at `key`, if there is one; those after the first
    /// `count_max` are left out.
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
    [[nodiscard]] const std::string* find_text(std::string_view key);
    [[nodiscard]] std::optional<std::string> word(std::string_view key);
    bool read_integer(std::string_view key, std::int64_t& out, std::uint64_t max, int min);
    void complain_of_choice(std::string_view key, const std::optional<std::string>& chosen);

    const nlohmann::json* object_;
    std::string prefix_;
    std::optional<std::string> complaint_;
};

}  // namespace regroup::protocol
