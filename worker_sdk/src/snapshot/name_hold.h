// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <cstdint>
#include <string>
#include <tuple>

namespace regroup::snapshot {

/// The right of one object of this process to save a state in a round.
class NameHold {
   public:
    /// Throws Error `invalid_argument` if another object has it.
    NameHold(const Context& context, const std::string& name);
    ~NameHold();
    NameHold(const NameHold&) = delete;
    NameHold& operator=(const NameHold&) = delete;

    using Key = std::tuple<std::uint64_t, std::uint32_t, std::string>;  ///< Round, rank, name.

   private:
    const Key key_;
};

}  // namespace regroup::snapshot
