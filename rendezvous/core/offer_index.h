// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/core/messages.h"

namespace regroup::rendezvous {

/// Index of roles and claimed slots, so that a join need not look at all nodes.
class OfferIndex {
   public:
    void add(const NodeId& node, const Offer& offer) {
        ++roles_[offer.role];
        ++commands_[{offer.role, offer.command}];
        if (offer.slot) {
            claims_.emplace(*offer.slot, node);
        }
    }
    void remove(const NodeId& node, const Offer& offer) {
        if (const auto role = roles_.find(offer.role);
            role != roles_.end() && --role->second == 0) {
            roles_.erase(role);
        }
        if (const auto command = commands_.find({offer.role, offer.command});
            command != commands_.end() && --command->second == 0) {
            commands_.erase(command);
        }
        if (offer.slot) {
            claims_.erase({*offer.slot, node});
        }
    }
    [[nodiscard]] std::size_t with_role(const std::string& role) const {
        const auto found = roles_.find(role);
        return found == roles_.end() ? 0 : found->second;
    }
    /// Some node of the role runs the command, or may do so.
    [[nodiscard]] bool has_command(const std::string& role, const std::string& command) const {
        return commands_.contains({role, command}) || commands_.contains({role, ""});
    }
    [[nodiscard]] std::vector<NodeId> claimants(std::uint32_t slot) const {
        std::vector<NodeId> nodes;
        for (auto claim = claims_.lower_bound({slot, {}});
             claim != claims_.end() && claim->first == slot; ++claim) {
            nodes.push_back(claim->second);
        }
        return nodes;
    }

   private:
    std::map<std::string, std::size_t> roles_;
    std::map<std::pair<std::string, std::string>, std::size_t> commands_;
    std::set<std::pair<std::uint32_t, NodeId>> claims_;
};

}  // namespace regroup::rendezvous
