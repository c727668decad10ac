// SPDX-License-Identifier: Apache-2.0
//
// The rules for fields of JSON objects. `visit_fields(io, value)` lists the fields of a struct
// once: with a FieldReader it reads them, with a FieldWriter it writes them.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>

#include "rendezvous/base/clock.h"

namespace regroup::protocol {

/// The longest lifetime of a job. Every instant on its timeline fits 64 bits in nanoseconds, and so
/// does such an instant plus any wait.
inline constexpr Duration kLifetimeMax = std::chrono::hours(24 * 365 * 30);

/// The largest whole number in a message: 53 bits, which any JSON reader keeps exactly.
inline constexpr std::uint64_t kIntegerMax = std::uint64_t{1} << 53U;

/// Whether a field is there.
enum class Presence : std::uint8_t {
    optional,  ///< It is left out if its value is empty, zero or false.
    left_out,
    written,   ///< Written always, and a reader does without.
    required,  ///< A reader complains if it is missing.
};

inline constexpr Presence kWritten = Presence::written;
inline constexpr Presence kRequired = Presence::required;

/// For a field whose default is another value than zero.
[[nodiscard]] constexpr Presence unless(bool is_default) noexcept {
    return is_default ? Presence::left_out : Presence::written;
}

/// The range of a whole number: `min` is 0 or -1, `max` at most kIntegerMax.
struct Range {
    std::uint64_t max = kIntegerMax;
    int min = 0;

    template <class Number>
    [[nodiscard]] static constexpr Range of() noexcept {
        return {std::min<std::uint64_t>(std::numeric_limits<Number>::max(), kIntegerMax)};
    }
};

/// The first and the last of consecutive enumerators.
template <class Enum>
struct Choices {
    Enum first;
    Enum last;
};

/// The type of the value that `visit_fields` gets: what a reader fills in is not const.
template <class Io, class Value>
using Visited = std::conditional_t<Io::kReads, Value, const Value>;

/// The alternative with that name, default-constructed. `names` are in the order of the variant.
template <class Variant, std::size_t N>
[[nodiscard]] std::optional<Variant> alternative_named(std::string_view name,
                                                       const std::string_view (&names)[N]) {
    static_assert(N == std::variant_size_v<Variant>);
    std::optional<Variant> made;
    const auto make = [&]<std::size_t... all>(std::index_sequence<all...>) {
        ((names[all] == name ? void(made.emplace(std::in_place_index<all>)) : void()), ...);
    };
    make(std::make_index_sequence<N>());
    return made;
}

}  // namespace regroup::protocol
