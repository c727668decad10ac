// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <set>
#include <utility>
#include <vector>

#include "rendezvous/core/cause.h"
#include "rendezvous/core/node_slot.h"

namespace regroup::rendezvous {

/// Decides which nodes are lost, from signs of life alone.
///
/// A node is lost when it has been silent for `silence_limit`, or when its connection broke and it
/// has not come back within `return_limit`, whichever is first. Each call costs O(log nodes).
///
/// Silence proves nothing if the daemon itself was asleep (SIGSTOP, a suspended machine). If `lost`
/// is called much later than a deadline, the node gets one more period of grace, and only one until
/// the daemon hears from it again.
///
/// After a restart the daemon gives all nodes time to come back. If the daemon restarts again
/// before that time is over, the time goes on from where it was. For this, the detector records
/// once a second that the daemon still listens, as long as a node is missing. The first
/// `kReturnPause` after each restart does not count, since a node may pause between two attempts.
class FailureDetector {
   public:
    /// The least time for nodes to reconnect after a restart of the daemon: an agent tries again
    /// within 2 s, and each attempt may take 5 s.
    static constexpr Duration kReturnCycle = std::chrono::seconds(8);
    /// A second more for as many nodes: the daemon greets one after another.
    static constexpr std::size_t kReturnsPerSecond = 1000;
    /// The longest pause of an agent between two attempts.
    static constexpr Duration kReturnPause = std::chrono::seconds(2);

    FailureDetector(Duration silence_limit, Duration return_limit);

    /// A sign of life; also ends a suspicion. Unknown nodes become known.
    void heard(NodeSlot node, Instant now);
    /// The node's connection broke. Unknown nodes are ignored. A second call does not prolong the
    /// suspicion. `limit`: it has no more time than this to come back.
    void suspect(NodeSlot node, Instant now, Duration limit = Duration::max());
    /// The daemon was away and all nodes have to come back. All known nodes are under suspicion,
    /// each for `absence_limit`, or for the rest of it after a further restart.
    void suspect_all(Instant now);
    void forget(NodeSlot node);

    /// The longest time that nodes have to come back after `suspect_all`.
    [[nodiscard]] Duration absence_limit() const noexcept {
        return std::max(silence_limit_, kReturnCycle) +
               std::chrono::seconds(deadlines_.size() / kReturnsPerSecond);
    }
    [[nodiscard]] bool suspects(NodeSlot node) const;
    [[nodiscard]] Instant heard_at(NodeSlot node) const;
    /// The first sign that something is wrong with the node: when its connection broke, or when the
    /// daemon last heard from it if silence is the reason.
    [[nodiscard]] Instant first_sign(NodeSlot node) const;
    /// When the node will be lost if it stays silent; Instant::min() if it is not known.
    [[nodiscard]] Instant lost_at(NodeSlot node) const;

    /// When the last node will be lost if all stay silent; Instant::min() if there is no node.
    [[nodiscard]] Instant last_deadline() const;

    /// When `lost` must be called next: a node will be lost, or the detector must record that the
    /// daemon still listens. Instant::max() if there is no node.
    [[nodiscard]] Instant next_deadline() const;
    /// The nodes that are lost at `now`, and how, by their deadlines. They stay known until the
    /// caller forgets them.
    /// The caller is expected to call this at `next_deadline()`.
    [[nodiscard]] std::vector<std::pair<NodeSlot, Departure>> lost(Instant now);

   private:
    struct Entry {
        bool known = false;
        Instant heard;
        Instant deadline = Instant::min();
        Instant suspected_at{};
        bool suspected = false;
        bool by_absence = false;     // Suspected because the daemon was away.
        std::uint32_t absences = 0;  // How often the daemon was away since it heard from the node.
        Duration return_time{};      // The time to come back, from the last restart on.
        bool pardoned = false;       // The node has had its period of grace.
    };
    [[nodiscard]] bool knows(NodeSlot node) const noexcept {
        return node < entries_.size() && entries_[node].known;
    }
    /// True if the deadline comes from silence and not from a broken connection.
    [[nodiscard]] bool fell_silent(const Entry& entry) const;
    [[nodiscard]] Departure departure_of(const Entry& entry) const;
    /// Ends the suspicion.
    void clear(Entry& entry);
    void move_deadline(NodeSlot node, Entry& entry, Instant deadline);

    Duration silence_limit_;
    Duration return_limit_;
    std::vector<Entry> entries_;  // By slot.
    std::set<std::pair<Instant, NodeSlot>> deadlines_;
    std::size_t absent_count_ = 0;        // Nodes under suspicion since a restart.
    Duration attended_{};                 // The recorded time of listening since the last restart.
    Instant attend_at_ = Instant::max();  // When the next second of listening is recorded.
};

}  // namespace regroup::rendezvous
