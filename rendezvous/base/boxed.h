// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace regroup {

/// A value, or none, behind a pointer: for large parts of values that are mostly not there, or that
/// are copied more often than changed. Copies share it; it never changes. Compared by value.
template <class T>
class Boxed {
   public:
    Boxed() = default;
    Boxed(T value)
        : value_(std::make_shared<const T>(std::move(value))) {}  // NOLINT(google-explicit-*)

    [[nodiscard]] explicit operator bool() const noexcept { return value_ != nullptr; }
    /// Without a value: a default one.
    [[nodiscard]] const T& operator*() const {
        static const T kNone{};
        return value_ ? *value_ : kNone;
    }
    [[nodiscard]] const T* operator->() const { return &**this; }

    friend bool operator==(const Boxed& a, const Boxed& b) {
        return a.value_ == b.value_ || (bool(a) == bool(b) && *a == *b);
    }

   private:
    std::shared_ptr<const T> value_;
};

}  // namespace regroup
