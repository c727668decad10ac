// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "rendezvous/base/clock.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup::stopping {

/// The ranks of a round tell each other in its store about a stop:
///
///     asked          why the ranks are to stop, from the first rank that was asked
///     answer/RANK    the first step that RANK had not begun when it heard of it, or when it ended
///     answers        how many ranks have answered
///     step           the largest answer, from the rank that answered last: here all ranks stop
///     heard          how many ranks know the step, or have ended
///     all heard      is there when all do, for rank 0, if the store ends with it
///
/// Calls throw as those of the store. One thread at a time.
class StopBoard {
   public:
    /// Throws as Context::store.
    explicit StopBoard(const Context& context);
    /// The same over another connection to the store, if it is one, so that no call waits for
    /// another. Its waits end with `scope`.
    [[nodiscard]] StopBoard connect_again(std::shared_ptr<RoundScope> scope) const;

    void ask(const std::string& why);
    /// False if the key is not there until `deadline`. Throws Error `fenced`.
    [[nodiscard]] bool await(const std::string& key, Instant deadline);
    void answer(std::uint64_t next);
    [[nodiscard]] std::uint64_t step();
    void count_heard();
    /// The ranks that have not answered within `limit`.
    [[nodiscard]] std::string silence(Duration limit);

   private:
    StopBoard(const StopBoard& other, MemberStore store, std::shared_ptr<RoundScope> scope,
              bool is_own);

    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    MemberStore store_;
    const std::shared_ptr<RoundScope> scope_{};
    const bool is_own_ = false;
};

}  // namespace regroup::stopping
