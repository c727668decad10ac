// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/errc.h>

#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "rendezvous/base/ensure.h"

namespace regroup {

/// A failure that a correct caller must expect. Bugs are checked with ENSURE instead.
struct Failure {
    Failure(Errc code_in, std::string detail_in) : code(code_in), detail(std::move(detail_in)) {}

    Errc code;
    /// One sentence for a person: the operation, the peer, the limit, the time it took.
    std::string detail;
};

/// A Failure of kind `system`: "`what`: <text of `error_number`>".
[[nodiscard]] Failure system_failure(const std::string& what, int error_number);

[[nodiscard]] inline Failure invalid_argument(std::string detail) {
    return {Errc::invalid_argument, std::move(detail)};
}

/// A `T` or a Failure; a subset of std::expected's interface. Reading the wrong side aborts.
template <class T>
class [[nodiscard]] Result {
   public:
    Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}            // NOLINT
    Result(Failure failure) : state_(std::in_place_index<1>, std::move(failure)) {}  // NOLINT

    [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }
    explicit operator bool() const noexcept { return has_value(); }

    [[nodiscard]] T& operator*() & { return ENSURE(has_value()), *std::get_if<0>(&state_); }
    [[nodiscard]] const T& operator*() const& {
        return ENSURE(has_value()), *std::get_if<0>(&state_);
    }
    [[nodiscard]] T&& operator*() && {
        return ENSURE(has_value()), std::move(*std::get_if<0>(&state_));
    }
    [[nodiscard]] T* operator->() { return &**this; }
    [[nodiscard]] const T* operator->() const { return &**this; }
    [[nodiscard]] const Failure& error() const {
        return ENSURE(!has_value()), *std::get_if<1>(&state_);
    }

   private:
    std::variant<T, Failure> state_;
};

/// Success, or a Failure.
template <>
class [[nodiscard]] Result<void> {
   public:
    Result() = default;
    Result(Failure failure) : failure_(std::move(failure)) {}  // NOLINT

    [[nodiscard]] bool has_value() const noexcept { return !failure_.has_value(); }
    explicit operator bool() const noexcept { return has_value(); }
    [[nodiscard]] const Failure& error() const { return ENSURE(!has_value()), *failure_; }

   private:
    std::optional<Failure> failure_;
};

}  // namespace regroup
