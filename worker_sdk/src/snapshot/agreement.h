// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "rendezvous/snapshot/holdings.h"
#include "worker_sdk/src/base/round_scope.h"
#include "worker_sdk/src/store/member_store.h"

namespace regroup::snapshot {

/// The ranks of a round agree about one state through the store. All ranks make the same
/// calls in the same order. Calls throw Error as those of MemberStore, and `fenced` once the scope
/// of the context is interrupted. One thread.
class Agreement {
   public:
    Agreement(const Context& context, const std::string& name);

    /// Gives all ranks what each node has, by group rank. `holdings` is called on one rank of each
    /// node, when all ranks have called this.
    [[nodiscard]] std::vector<Announcement> announce(const std::function<Announcement()>& holdings);
    /// After `announce`: this rank speaks for its node, of whose ranks it is the lowest.
    [[nodiscard]] bool is_leader() const noexcept { return is_leader_; }

    /// True if this is what every rank says.
    [[nodiscard]] bool all(bool good);
    /// The first value that any rank has proposed under this name.
    [[nodiscard]] std::uint64_t number(std::string_view name, std::uint64_t proposed);
    /// Throws Error `fenced` if the round is over.
    void require_round() const;

    [[nodiscard]] const MemberStore& store() const noexcept { return store_; }

   private:
    /// Learns which nodes there are, and whether this rank speaks for one.
    void learn_nodes();
    /// Waits until all ranks have come here.
    void meet(const std::string& place);
    /// Waits until the key is there, in slices, so that the end of the round is noticed.
    void await(const std::string& key);

    const std::shared_ptr<RoundScope> scope_;
    const std::uint32_t rank_;
    const std::uint32_t world_size_;
    const std::uint32_t node_;
    const std::chrono::nanoseconds limit_;
    MemberStore store_;
    std::uint64_t announcements_ = 0;
    std::uint64_t votes_ = 0;
    std::map<std::uint32_t, std::uint32_t> leaders_;  // The lowest rank of each node.
    bool is_leader_ = false;
};

}  // namespace regroup::snapshot
