// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/errc.h>

#include <stdexcept>
#include <string>

namespace regroup {

/// The only exception of the SDK. `code()` tells a program how to react; `what()` is a sentence for
/// people that names the operation, the peer, the limit and the time.
class Error : public std::runtime_error {
   public:
    Error(Errc code, const std::string& detail) : std::runtime_error(detail), code_(code) {}

    [[nodiscard]] Errc code() const noexcept { return code_; }

   private:
    Errc code_;
};

}  // namespace regroup
