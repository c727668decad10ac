// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "worker_sdk/src/cpu/node_barrier.h"
#include "worker_sdk/src/cpu/node_memory.h"
#include "worker_sdk/src/group/standing.h"

namespace regroup::cpu {

/// The barriers of a node's collectives. At the first one of a collective the ranks learn what each
/// of them has called. An error names the ranks that are missing. Throws GroupFailure. One thread
/// at a time, `stop` apart.
class CollectiveBarrier {
   public:
    /// Gets what this rank knows of rank `rank`, when it waits for longer than kLongWait. On the
    /// thread that waits.
    using Listener = std::function<void(std::uint32_t rank, const Standing& standing)>;
    static constexpr Duration kLongWait = std::chrono::seconds(1);

    /// `names[i]` is rank i in errors.
    CollectiveBarrier(std::shared_ptr<const NodeMemory> memory, std::uint32_t rank,
                      std::vector<std::string> names, Listener listener);

    /// The barriers that follow belong to `called`, whose time begins `now`.
    void begin(const Signature& called, Instant now, Duration limit);
    /// This rank's entry for the next `enter`; only its region may be set.
    [[nodiscard]] NodeEntry& next_entry();
    /// Passes the barrier after which all ranks see each other's entries.
    void enter();
    void pass();
    /// Called after a barrier behind which no rank's buffer is read. A rank may time out there. Its
    /// caller may then overwrite the buffer while this rank still reads it. The values read are
    /// invalid then, even if all ranks have arrived.
    void check_sources() const;

    /// Alternates between 0 and 1 with the collectives.
    [[nodiscard]] std::uint32_t half() const noexcept { return entered_ % 2; }
    [[nodiscard]] const NodeEntry& entry(std::uint32_t rank) const {
        return memory_->board(rank).entries[half()];
    }
    [[nodiscard]] const std::string& name(std::uint32_t rank) const { return names_[rank]; }

    /// See NodeCollectives::stop. Any thread.
    void stop(bool orderly) noexcept;

   private:
    [[nodiscard]] bool is_hopeless();
    void tell_standings() const;
    void check_called() const;
    [[nodiscard]] bool missing(std::uint32_t rank) const noexcept;
    [[nodiscard]] std::optional<std::uint32_t> missing_for_good() const noexcept;
    [[nodiscard]] std::string missing_ranks() const;

    const std::shared_ptr<const NodeMemory> memory_;
    const std::uint32_t rank_;
    const std::vector<std::string> names_;
    const Listener listener_;
    NodeBarrier barrier_;

    std::uint32_t entered_ = 0;  // Collectives so far.
    // Of the collective under way.
    Signature called_{};
    Signature previous_{};      // The collective before; number 0: none.
    bool is_entering_ = false;  // Ranks that are missing at the barrier may be in `previous_`.
    Instant deadline_;
    Instant telling_at_;  // When to tell the listener about the others.
    Duration limit_{};
};

}  // namespace regroup::cpu
