// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <set>
#include <tuple>
#include <utility>

namespace regroup::rendezvous {

namespace {

bool is_digit(char c) noexcept {
    return c >= '0' && c <= '9';
}

std::size_t digits_end(std::string_view text, std::size_t from) noexcept {
    while (from < text.size() && is_digit(text[from])) {
        ++from;
    }
    return from;
}

std::string_view without_leading_zeros(std::string_view digits) noexcept {
    const std::size_t first = digits.find_first_not_of('0');
    return first == std::string_view::npos ? std::string_view{} : digits.substr(first);
}

bool is_loopback(std::string_view address) noexcept {
    return address.starts_with("127.") || address == "::1";
}

// Explicit slots first, then warm nodes, then the natural order of names. The node id makes the
// order total.
bool comes_before(const Member& a, const Member& b) noexcept {
    const auto slot = [](const Member& member) {
        return member.offer.slot.value_or(std::numeric_limits<std::uint32_t>::max());
    };
    if (slot(a) != slot(b)) {
        return slot(a) < slot(b);
    }
    if (a.warm != b.warm) {
        return a.warm;
    }
    if (a.offer.name != b.offer.name) {
        return natural_less(a.offer.name, b.offer.name);
    }
    return a.node < b.node;
}

}  // namespace

bool natural_less(std::string_view a, std::string_view b) noexcept {
    std::size_t i = 0;
    std::size_t j = 0;
    while (i < a.size() && j < b.size()) {
        if (is_digit(a[i]) && is_digit(b[j])) {
            const std::size_t i_end = digits_end(a, i);
            const std::size_t j_end = digits_end(b, j);
            const std::string_view x = without_leading_zeros(a.substr(i, i_end - i));
            const std::string_view y = without_leading_zeros(b.substr(j, j_end - j));
            if (x.size() != y.size()) {
                return x.size() < y.size();
            }
            if (x != y) {
                return x < y;
            }
            i = i_end;
            j = j_end;
        } else if (a[i] != b[j]) {
            return a[i] < b[j];
        } else {
            ++i;
            ++j;
        }
    }
    if (a.size() - i != b.size() - j) {
        return a.size() - i < b.size() - j;
    }
    return a < b;  // Equal but for leading zeros.
}

std::map<NodeId, std::size_t> RankTable::settle(std::span<const Member> candidates,
                                                std::map<NodeId, std::size_t> settled) {
    std::set<std::size_t> vacant;  // Slots whose owner is not here.
    std::multimap<std::string, std::size_t> vacant_by_name;
    for (std::size_t slot = 0; slot < homes_.size(); ++slot) {
        if (!settled.contains(homes_[slot].node)) {
            vacant.insert(slot);
            vacant_by_name.emplace(homes_[slot].name, slot);
        }
    }
    const auto give = [&](const Member& member, std::size_t slot) {
        if (slot == homes_.size()) {
            homes_.emplace_back();
        }
        homes_[slot] = Home{member.node, member.offer.name};
        vacant.erase(slot);
        settled.emplace(member.node, slot);
    };
    // First the nodes that claim a slot or come back under a known name, so that no other node
    // takes their slots.
    for (const Member& member : candidates) {
        if (settled.contains(member.node)) {
            continue;
        }
        if (member.offer.slot) {
            if (vacant.contains(*member.offer.slot)) {
                give(member, *member.offer.slot);
            }
            continue;
        }
        const auto [first, last] = vacant_by_name.equal_range(member.offer.name);
        const auto own = std::find_if(
            first, last, [&](const auto& entry) { return vacant.contains(entry.second); });
        if (own != last) {
            give(member, own->second);
        }
    }
    for (const Member& member : candidates) {
        if (!settled.contains(member.node)) {
            give(member, vacant.empty() ? homes_.size() : *vacant.begin());
        }
    }
    return settled;
}

std::vector<Member> RankTable::arrange(std::vector<Member> candidates, std::size_t nodes_max) {
    std::map<NodeId, std::size_t> owners;
    for (std::size_t slot = 0; slot < homes_.size(); ++slot) {
        owners.emplace(homes_[slot].node, slot);
    }
    std::sort(candidates.begin(), candidates.end(), [&](const Member& a, const Member& b) {
        if (a.leaves != b.leaves) {
            return b.leaves;
        }
        const bool a_home = owners.contains(a.node);
        const bool b_home = owners.contains(b.node);
        if (a_home != b_home) {
            return a_home;
        }
        const bool a_holds = a.held_step > 0;
        const bool b_holds = b.held_step > 0;
        return a_holds != b_holds ? a_holds : comes_before(a, b);
    });
    if (candidates.size() > nodes_max) {
        // The round continues from the latest state: the first node that has it must be included.
        const auto furthest = std::max_element(
            candidates.begin(), candidates.end(),
            [](const Member& a, const Member& b) { return a.held_step < b.held_step; });
        if (const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(nodes_max) - 1;
            furthest > last) {
            std::iter_swap(furthest, last);
        }
        candidates.resize(nodes_max);
    }
    std::map<NodeId, std::size_t> present;
    for (const Member& member : candidates) {
        if (const auto owner = owners.find(member.node); owner != owners.end()) {
            present.insert(*owner);
        }
    }
    present = settle(candidates, std::move(present));
    // Homes may have gaps and exceed the world; explicit slots and homes below its size are kept,
    // the others fill the gaps in order.
    std::vector<std::optional<Member>> world(candidates.size());
    std::vector<const Member*> displaced;
    const auto wanted = [&](const Member& member) {
        return member.offer.slot ? std::size_t{*member.offer.slot} : present.at(member.node);
    };
    std::sort(candidates.begin(), candidates.end(), [&](const Member& a, const Member& b) {
        return std::tuple(!a.offer.slot, wanted(a)) < std::tuple(!b.offer.slot, wanted(b));
    });
    for (const Member& member : candidates) {
        const std::size_t slot = wanted(member);
        if (slot < world.size() && !world[slot]) {
            world[slot] = member;
        } else {
            displaced.push_back(&member);
        }
    }
    std::size_t gap = 0;
    for (const Member* member : displaced) {
        while (world[gap]) {
            ++gap;
        }
        world[gap] = *member;
    }
    std::vector<Member> result;
    result.reserve(world.size());
    for (std::optional<Member>& member : world) {
        result.push_back(std::move(*member));
    }
    return result;
}

std::vector<Assignment> assign_ranks(std::span<const Member> members) {
    std::map<std::string, std::uint32_t> role_sizes;
    std::uint32_t world_size = 0;
    std::vector<Assignment> result(members.size());
    for (std::size_t i = 0; i < members.size(); ++i) {
        result[i].group_rank = static_cast<std::uint32_t>(i);
        result[i].group_world_size = static_cast<std::uint32_t>(members.size());
        result[i].first_rank = world_size;
        std::uint32_t& role_size = role_sizes[members[i].offer.role];
        result[i].role_first_rank = role_size;
        role_size += members[i].offer.workers;
        world_size += members[i].offer.workers;
    }
    const std::string address = members.empty() ? std::string() : master_address(members);
    const bool member_serves =
        std::any_of(members.begin(), members.end(),
                    [](const Member& member) { return member.offer.hosts_rendezvous; });
    for (std::size_t i = 0; i < members.size(); ++i) {
        result[i].world_size = world_size;
        result[i].role_world_size = role_sizes[members[i].offer.role];
        result[i].master_addr = address;
        result[i].master_port = members[0].store_port;
        result[i].store_key = members[0].offer.store_key;
        result[i].member_serves = member_serves;
    }
    return result;
}

std::string master_address(std::span<const Member> members) {
    const Offer& master = members.front().offer;
    const bool all_here = std::all_of(members.begin(), members.end(), [](const Member& member) {
        return is_loopback(member.offer.address);
    });
    if (master.address_is_explicit || !is_loopback(master.address) || all_here ||
        master.other_addresses.empty()) {
        return master.address;
    }
    return master.other_addresses.front();
}

}  // namespace regroup::rendezvous
