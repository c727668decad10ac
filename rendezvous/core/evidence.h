// SPDX-License-Identifier: Apache-2.0
//
// Evidence of what went wrong in a round, and the judgement at the end of the round. A daemon gets
// messages by the thousand, and each may bring evidence. No message costs more for the evidence
// that others brought.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "rendezvous/base/boxed.h"
#include "rendezvous/core/cause.h"

namespace regroup::rendezvous {

namespace heard {

struct WorkerFailed {
    Boxed<WorkerFailure> failure{};
};
struct NodeGone {
    std::string node{};
    Departure how{};
    /// The node had neither finished nor left as planned. If false, the node is only named.
    bool was_needed = true;
};
struct LinkBroken {
    NodeId said_by{};
    causes::LinkBroke link{};
};
struct RoundAbandoned {
    std::string node{};
    bool store_spent = false;
    /// False: another node had reached the step boundary already, or the round was ending.
    bool ends_round = true;
};
/// A hang for which no agent reports that it ended a worker.
struct HangFound {
    Boxed<WorkerFailure> failure{};
    Boxed<causes::Hung> cause{};
    bool proven = false;
};
struct Superseded {
    causes::Superseded cause{};
};
struct BegunBehind {
    causes::BegunBehind cause{};
};

}  // namespace heard

/// One observation about a round. Entries are kept in order of arrival. Messages from several nodes
/// may overtake each other, so the first entry is not always the cause.
struct Evidence {
    using WorkerFailed = heard::WorkerFailed;
    using NodeGone = heard::NodeGone;
    using LinkBroken = heard::LinkBroken;
    using RoundAbandoned = heard::RoundAbandoned;
    using HangFound = heard::HangFound;
    using Superseded = heard::Superseded;
    using BegunBehind = heard::BegunBehind;
    Instant at{};  ///< The time of the first sign.
    std::variant<WorkerFailed, NodeGone, LinkBroken, RoundAbandoned, HangFound, Superseded,
                 BegunBehind>
        what{};

    template <class Alternative>
    [[nodiscard]] const Alternative* as() const noexcept {
        return std::get_if<Alternative>(&what);
    }
    /// True if this entry ends a round at once. A broken link may end it later.
    [[nodiscard]] bool is_decisive() const noexcept;
};

/// Why the daemon ordered a round to end.
struct RoundEnd {
    std::optional<std::size_t> by{};  ///< Index of the evidence; nullopt: a planned change.
    Cause planned{};                  ///< The reason of the planned change.
    /// A member left as planned, or may have left, before all others were known to be at the same
    /// boundary. Failures of the others may follow from that.
    bool leaver_may_be_gone = false;
};

/// The cause of a round's end, and the budget that is charged for it.
struct Judgement {
    enum class Charge : std::uint8_t {
        none,
        failure,  ///< `failure`.
        losses,   ///< `lost` nodes.
        network,  ///< No node can be blamed; the next round follows after a back-off.
    };
    Cause cause{};
    Charge charge = Charge::none;
    std::optional<WorkerFailure> failure{};  ///< The first one, charged or not.
    /// Nothing shows that the node of `failure` is to blame.
    bool blameless = false;
    std::vector<std::string> lost{};  ///< Names of the nodes whose loss is charged.
};

/// The broken links between the ranks of a round, and the failures that may explain them. Each call
/// costs O(log size).
class BrokenLinks {
   public:
    /// `rank` reports that it lost `peer`. `index`: of the evidence; never decreases.
    void add(std::size_t index, std::uint32_t rank, std::uint32_t peer);
    void add(const Boxed<WorkerFailure>& failure);

    [[nodiscard]] bool contains(std::uint32_t rank, std::uint32_t peer) const {
        return links_.contains({rank, peer});
    }
    /// The first index of a link that both of its ends have reported; nullopt if there is none.
    [[nodiscard]] std::optional<std::size_t> mutual() const noexcept { return mutual_; }
    /// The failure that may be the reason for the broken links: one that no other outranks, of the
    /// lowest rank. O(failures).
    [[nodiscard]] Boxed<WorkerFailure> explanation() const;

   private:
    void weigh(std::uint32_t rank);

    std::map<std::pair<std::uint32_t, std::uint32_t>, std::size_t> links_;  // The first index.
    std::optional<std::size_t> mutual_;
    std::set<std::uint32_t> lost_;                          // Ranks that a peer lost.
    std::map<std::uint32_t, Boxed<WorkerFailure>> failed_;  // The first failure of each rank.
    std::set<std::uint32_t> explaining_;                    // Failed ranks that may be the reason.
};

/// Judges a round that ends, entry by entry. Rules, in this order:
///  1. A lost node explains every other failure, except a failure that the worker itself declared
///     final.
///  2. Among reported failures, a root failure counts before a failure that may follow from it (see
///     `outranks`). Of two with equal weight the first counts. If the round ended for another
///     reason, only failures count of which the worker said that its peers did not cause them.
///  3. A broken link, or an abandoned round, is explained by a worker that crashed. A worker that
///     ended with an error explains it too, if no other worker lost a live peer and this worker had
///     not reported a lost peer before.
///  4. An error does not explain that a node could not serve the store: workers end with an error
///     when they lose the store.
class Judge {
   public:
    /// The round ends because of entry `by`; nullopt: a planned change. Considers all `entries`.
    Judge(std::span<const Evidence> entries, std::optional<std::size_t> by);
    /// A later entry.
    void add(const Evidence& entry) { consider(entry, false); }
    [[nodiscard]] Judgement judge(const RoundEnd& end, const BrokenLinks& links) const;

   private:
    void consider(const Evidence& entry, bool is_trigger);
    void weigh(const Boxed<WorkerFailure>& failure, bool is_trigger);

    Cause trigger_{};  // The cause in `by`, if no failure and no loss counts.
    bool by_change_ = false;
    bool by_link_ = false;
    bool by_network_ = false;
    bool lost_any_ = false;
    Cause::Gone gone_{};
    std::optional<std::string> spent_{};  // The first node that could not serve the store.
    Boxed<causes::Hung> hung_{};
    Judgement result_{};
};

/// The evidence against one round, in order of arrival. The first entries count: which ones are
/// kept depends on nothing but their order.
class EvidenceLog {
   public:
    /// Broken links beyond this number are not kept: four for each node of the largest job.
    static constexpr std::size_t kLinksMax = 65'536;

    /// Records an observation. False if it is not kept. O(log size).
    bool add(Evidence entry);
    /// The round ends because of entry `by`; nullopt: a planned change.
    void end(std::optional<std::size_t> by) { judge_.emplace(entries_, by); }

    /// The entries until `end`.
    [[nodiscard]] const std::vector<Evidence>& entries() const noexcept { return entries_; }
    /// The index of the first entry that ends the round at once: a decisive one, otherwise a broken
    /// link that both of its ends have reported.
    [[nodiscard]] std::optional<std::size_t> decisive() const noexcept {
        return decisive_ ? decisive_ : links_.mutual();
    }
    [[nodiscard]] bool has_decisive() const noexcept { return decisive_.has_value(); }
    /// The round has lost a node that it needed.
    [[nodiscard]] bool has_lost_nodes() const noexcept { return has_lost_nodes_; }
    /// The first sign of a broken link, if there is one.
    [[nodiscard]] std::optional<Instant> link_broke_at() const noexcept { return link_broke_at_; }
    /// Requires `end`. O(lost nodes and failures).
    [[nodiscard]] Judgement judge(const RoundEnd& end) const;

   private:
    std::vector<Evidence> entries_;
    BrokenLinks links_;
    std::optional<Judge> judge_;
    std::size_t links_kept_ = 0;
    std::optional<std::size_t> decisive_;
    std::optional<Instant> link_broke_at_;
    bool has_lost_nodes_ = false;
};

}  // namespace regroup::rendezvous
