// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdlib>
#include <map>
#include <optional>
#include <string>
#include <utility>

#include "launcher/cluster/allocation.h"

namespace regroup::testing {

/// An environment of exactly these variables.
inline launcher::Environment environment_of(const std::map<std::string, std::string>& values) {
    return [values](const std::string& name) -> std::optional<std::string> {
        const auto found = values.find(name);
        return found != values.end() ? std::optional(found->second) : std::nullopt;
    };
}

/// Sets an environment variable, or removes it, for as long as the object lives.
class ScopedVariable {
   public:
    ScopedVariable(std::string name, const char* value) : name_(std::move(name)) {
        if (const char* before = std::getenv(name_.c_str())) {
            before_ = before;
        }
        assign(value);
    }
    ~ScopedVariable() { assign(before_ ? before_->c_str() : nullptr); }
    ScopedVariable(const ScopedVariable&) = delete;
    ScopedVariable& operator=(const ScopedVariable&) = delete;

   private:
    void assign(const char* value) {
        if (value != nullptr) {
            ::setenv(name_.c_str(), value, 1);
        } else {
            ::unsetenv(name_.c_str());
        }
    }

    std::string name_;
    std::optional<std::string> before_;
};

}  // namespace regroup::testing
