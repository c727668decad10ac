// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <map>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/core/cause.h"

namespace regroup::rendezvous {

/// Decides from signs of life, and from nothing else, which nodes are lost.
///
/// A node is lost when it has been silent for `silence_limit`, or when its connection broke and it
/// has not come back within `return_limit`, whichever is first. Each call costs O(log nodes).
///
/// Silence proves nothing to a listener who was asleep (SIGSTOP, a suspended machine): if `lost` is
/// asked much later than a limit ran out, the node gets one more period of grace, and only one
/// until it is heard again.
///
/// A listener that was away gives everyone a time to come back. Should it go away again before that
/// is over, it goes on where it was, as far as it knows: while somebody is missing it notes once a
/// second that it still listens. What does not count is the beginning of each time that it was
/// there, since a node may just have paused between two attempts.
class FailureDetector {
   public:
    /// For as long, at least, nodes may be on their way back to a listener that was away: one that
    /// was not reached is tried again within 2 s, and each attempt may take 5 s.
    static constexpr Duration kReturnCycle = std::chrono::seconds(8);
    /// Nodes pause for so long at most between two attempts.
    static constexpr Duration kReturnPause = std::chrono::seconds(2);

    FailureDetector(Duration silence_limit, Duration return_limit);

    /// A sign of life; also ends a suspicion. Unknown nodes become known.
    void heard(const NodeId& node, Instant now);
    /// The node's connection broke. Unknown nodes are ignored; repeated suspicion does not prolong.
    void suspect(const NodeId& node, Instant now);
    /// We were away and everyone has to come back: all known nodes are under suspicion, each for
    /// `absence_limit`, or for what was left of it when we went away again.
    void suspect_all(Instant now);
    void forget(const NodeId& node);

    /// How long everyone has to come back after `suspect_all`, at most.
    [[nodiscard]] Duration absence_limit() const noexcept {
        return std::max(silence_limit_, kReturnCycle);
    }
    [[nodiscard]] bool suspects(const NodeId& node) const;
    /// True if any node is under suspicion: a decision about membership is better left until the
    /// suspicion has been resolved, which takes at most `return_limit` (`absence_limit` after
    /// `suspect_all`).
    [[nodiscard]] bool suspects_any() const noexcept { return suspects_count_ > 0; }
    [[nodiscard]] Instant heard_at(const NodeId& node) const;
    /// The first sign that something is wrong with the node: when its connection broke, or when it
    /// was last heard if it is silence that ends its time.
    [[nodiscard]] Instant first_sign(const NodeId& node) const;
    /// When the node will be lost if nothing is heard of it; Instant::min() if it is not known.
    [[nodiscard]] Instant lost_at(const NodeId& node) const;

    /// When the last node will be lost if nothing is heard; Instant::min() if there is none.
    [[nodiscard]] Instant last_deadline() const;

    /// When `lost` is to be asked again: if nothing is heard, the next node will be lost, or it is
    /// to be noted that we still listen. Instant::max() if there is no node.
    [[nodiscard]] Instant next_deadline() const;
    /// The nodes that are lost at `now`, and how. They stay known until forgotten; the
    /// caller is expected to ask at `next_deadline()` and to forget them.
    [[nodiscard]] std::vector<std::pair<NodeId, Departure>> lost(Instant now);

   private:
    struct Entry {
        Instant heard;
        Instant deadline;
        Instant suspected_at{};
        bool suspected = false;
        bool by_absence = false;     // It is we who were away,
        std::uint32_t absences = 0;  // so often since it was heard.
        Duration return_time{};      // How long it has to come back since the last time.
        bool pardoned = false;       // Has had its second period.
    };
    /// True if it is silence, rather than a broken connection, that ends the node's time.
    [[nodiscard]] bool fell_silent(const Entry& entry) const;
    [[nodiscard]] Departure departure_of(const Entry& entry) const;
    /// No longer under suspicion.
    void clear(Entry& entry);
    void move_deadline(const NodeId& node, Entry& entry, Instant deadline);

    Duration silence_limit_;
    Duration return_limit_;
    std::map<NodeId, Entry> entries_;
    std::set<std::pair<Instant, NodeId>> deadlines_;
    std::size_t suspects_count_ = 0;
    std::size_t absent_count_ = 0;  // Of these, those who have to come back because we were away.
    Duration attended_{};           // For how long we have listened since then, as far as is noted.
    Instant attend_at_ = Instant::max();  // When that is to be noted next.
};

}  // namespace regroup::rendezvous
