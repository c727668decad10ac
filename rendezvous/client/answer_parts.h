// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Puts the parts of a daemon's answer to `Operate::parts` together. Pure.
class AnswerParts {
   public:
    /// A longer text is cut: no daemon sends it.
    static constexpr std::size_t kBytesMax = std::size_t{16} << 20U;

    /// The whole answer, with its last part.
    [[nodiscard]] std::optional<Operated> take(Operated part);
    /// The bytes that have come so far belong to a connection that is lost.
    void forget() { text_.clear(); }

   private:
    std::string text_;
};

}  // namespace regroup::rendezvous
