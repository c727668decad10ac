// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "rendezvous/core/cause.h"

namespace regroup::rendezvous {

/// The quarantined nodes: those that ended rounds repeatedly, and those that a worker asked to
/// replace. Keyed by name, since a restarted node has a new id. Pure; bounded.
class NodeFailures {
   public:
    /// The limit of names; beyond it the oldest are forgotten.
    static constexpr std::size_t kNamesLimit = 16384;

    struct Entry {
        Quarantine why{};
        Instant until{};

        friend bool operator==(const Entry&, const Entry&) = default;
    };

    /// With `failures_max` 0 failures alone quarantine no node.
    NodeFailures(std::uint32_t failures_max, Duration window)
        : failures_max_(failures_max), window_(window) {}

    /// Charges the end of a round to the node. True if the limit is reached; then the caller
    /// decides whether the node is quarantined.
    [[nodiscard]] bool count(const std::string& name, Instant now);
    /// Quarantines the node for `window` because of `cause`, and resets its count of failures.
    /// `asked`: a worker asked for another node.
    void quarantine(const std::string& name, Cause cause, bool asked, Instant now);
    /// Releases all nodes except those that a worker asked to replace. Returns their names.
    std::vector<std::string> release();
    /// Releases this node, whatever it is quarantined for. False if it is not quarantined.
    bool release(const std::string& name) { return quarantined_.erase(name) > 0; }
    /// Releases the nodes whose time is over at `now`. Returns their names.
    std::vector<std::string> expire(Instant now);

    [[nodiscard]] bool is_quarantined(const std::string& name) const {
        return !quarantined_.empty() && quarantined_.contains(name);
    }
    /// The node is quarantined, and `release` would not change that.
    [[nodiscard]] bool is_kept_out(const std::string& name) const {
        const auto found = quarantined_.find(name);
        return found != quarantined_.end() && found->second.why.asked;
    }
    /// True if `release` would release a node.
    [[nodiscard]] bool any_to_release() const;
    [[nodiscard]] const std::map<std::string, Entry>& quarantined() const noexcept {
        return quarantined_;
    }
    /// When `expire` is next due; Instant::max() if never.
    [[nodiscard]] Instant next_deadline() const;

   private:
    std::vector<std::string> take_if(bool (*is_it)(const Entry&, Instant), Instant now);

    std::uint32_t failures_max_;
    Duration window_;
    std::map<std::string, std::vector<Instant>> failures_;  // Each at most `failures_max_` long.
    std::map<std::string, Entry> quarantined_;
};

}  // namespace regroup::rendezvous
