// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/errc.h>

#include <stdexcept>
#include <string>

namespace regroup {

/// The one exception of the SDK. `code()` names the sensible reaction, `what()` is a sentence for a
/// person: the operation, the peer, the limit, the time it took.
class Error : public std::runtime_error {
   public:
    Error(Errc code, const std::string& detail) : std::runtime_error(detail), code_(code) {}

    [[nodiscard]] Errc code() const noexcept { return code_; }

   private:
    Errc code_;
};

}  // namespace regroup
