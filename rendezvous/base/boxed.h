// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <utility>

namespace regroup {

/// An optional immutable value behind a shared pointer, for large members that are usually absent
/// or often copied. Copies share the value. Compared by value.
template <class T>
class Boxed {
   public:
    Boxed() = default;
    explicit(false) Boxed(T value) : value_(std::make_shared<const T>(std::move(value))) {}

    [[nodiscard]] explicit operator bool() const noexcept { return value_ != nullptr; }
    /// A default-constructed T if there is no value.
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
