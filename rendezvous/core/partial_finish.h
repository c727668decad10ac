// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/core/rank_set.h"

namespace regroup::rendezvous {

/// Some ranks of a round have ended with success, and the others go on.
struct PartialFinish {
    RankSummary finished{};
    RankSummary awaited{};  ///< All others of the round.
    Duration since{};       ///< Since the daemon heard of the first one.
    Duration left{};        ///< Until the job ends because of it; zero: it does not.
    std::string told{};     ///< If decoded from a message: the sentence; other fields unset.

    PartialFinish() = default;
    explicit(false) PartialFinish(std::string words) : told(std::move(words)) {}

    [[nodiscard]] bool is_known() const noexcept { return !finished.empty() || !told.empty(); }
    friend bool operator==(const PartialFinish&, const PartialFinish&) = default;
};

}  // namespace regroup::rendezvous
