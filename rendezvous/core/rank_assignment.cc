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

// In topologies there are rarely more. The bound keeps long keys cheap.
constexpr std::size_t kSwitchesMax = 8;

// The first `count` switches of a key, with their dots: "s0.s4." of "s0.s4.node7"; nullopt if it
// has fewer.
std::optional<std::string_view> switches(std::string_view key, std::size_t count) noexcept {
    std::size_t end = 0;
    for (; count > 0; --count) {
        const std::size_t dot = key.find('.', end);
        if (dot == std::string_view::npos) {
            return std::nullopt;
        }
        end = dot + 1;
    }
    return key.substr(0, end);
}

// Calls `use` with each of these beginnings of a key, from "" on, as long as it returns true.
template <class Use>
void for_each_beginning(std::string_view key, Use use) {
    for (std::size_t count = 0; count <= kSwitchesMax; ++count) {
        const auto beginning = switches(key, count);
        if (!beginning || !use(*beginning)) {
            return;
        }
    }
}

// The order of nodes of equal standing. The node id makes it total.
bool comes_before(const Member& a, const Member& b) noexcept {
    const std::string& a_key = a.offer.rank_key;
    const std::string& b_key = b.offer.rank_key;
    if (a_key.empty() != b_key.empty()) {
        return b_key.empty();
    }
    if (a_key != b_key) {
        return natural_less(a_key, b_key);
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

std::map<NodeId, std::size_t> RankTable::owners() const {
    std::map<NodeId, std::size_t> result;
    for (std::size_t slot = 0; slot < homes_.size(); ++slot) {
        result.emplace(homes_[slot].node, slot);
    }
    return result;
}

RankTable::Vacancies RankTable::vacancies(const std::map<NodeId, std::size_t>& settled) const {
    Vacancies result;
    for (std::size_t slot = 0; slot < homes_.size(); ++slot) {
        if (!settled.contains(homes_[slot].node)) {
            for_each_beginning(homes_[slot].rank_key, [&](std::string_view beginning) {
                result[std::string(beginning)].insert(slot);
                return true;
            });
        }
    }
    return result;
}

std::map<NodeId, std::size_t> RankTable::settle(std::span<const Member> candidates,
                                                std::map<NodeId, std::size_t> settled) {
    Vacancies vacant = vacancies(settled);
    const std::set<std::size_t>& all_vacant = vacant[""];
    std::multimap<std::string, std::size_t> vacant_by_name;
    for (const std::size_t slot : all_vacant) {
        vacant_by_name.emplace(homes_[slot].name, slot);
    }
    const auto give = [&](const Member& member, std::size_t slot) {
        if (slot == homes_.size()) {
            homes_.emplace_back();
        }
        for_each_beginning(homes_[slot].rank_key, [&](std::string_view beginning) {
            const auto under = vacant.find(beginning);
            return under != vacant.end() && under->second.erase(slot) > 0;
        });
        homes_[slot] = Home{member.node, member.offer.name, member.offer.rank_key};
        settled.emplace(member.node, slot);
    };
    // First the nodes that claim a slot or come back under a known name, so that no other node
    // takes their slots.
    for (const Member& member : candidates) {
        if (settled.contains(member.node)) {
            continue;
        }
        if (member.offer.slot) {
            if (all_vacant.contains(*member.offer.slot)) {
                give(member, *member.offer.slot);
            }
            continue;
        }
        // Each entry is looked at once, however many nodes share a name.
        auto [own, last] = vacant_by_name.equal_range(member.offer.name);
        while (own != last && !all_vacant.contains(own->second)) {
            own = vacant_by_name.erase(own);
        }
        if (own != last) {
            give(member, own->second);
        }
    }
    // Then those that share most switches with a free slot.
    for (std::size_t count = kSwitchesMax; count > 0; --count) {
        for (const Member& member : candidates) {
            const auto beginning = switches(member.offer.rank_key, count);
            const auto near = beginning ? vacant.find(*beginning) : vacant.end();
            if (near != vacant.end() && !near->second.empty() && !settled.contains(member.node)) {
                give(member, *near->second.begin());
            }
        }
    }
    for (const Member& member : candidates) {
        if (!settled.contains(member.node)) {
            give(member, all_vacant.empty() ? homes_.size() : *all_vacant.begin());
        }
    }
    return settled;
}

void RankTable::sort_by_preference(std::vector<Member>& candidates) const {
    const std::map<NodeId, std::size_t> owners = this->owners();
    std::map<NodeId, std::size_t> staying;
    for (const Member& member : candidates) {
        if (const auto owner = owners.find(member.node); owner != owners.end() && !member.leaves) {
            staying.insert(*owner);
        }
    }
    const Vacancies vacant = vacancies(staying);
    // How many switches the node shares with a free slot.
    const auto nearness = [&](const Member& member) {
        std::size_t found = 0;
        for_each_beginning(member.offer.rank_key, [&](std::string_view beginning) {
            const bool shares = vacant.contains(beginning);
            found += shares ? 1 : 0;
            return shares;
        });
        return found;
    };
    // Lower is better.
    using Preference = std::tuple<bool, bool, bool, std::uint32_t, bool, std::size_t>;
    std::map<NodeId, Preference> preferences;
    for (const Member& member : candidates) {
        const std::uint32_t slot =
            member.offer.slot.value_or(std::numeric_limits<std::uint32_t>::max());
        preferences[member.node] = {member.leaves,         !owners.contains(member.node),
                                    member.held_step == 0, slot,
                                    !member.warm,          kSwitchesMax + 1 - nearness(member)};
    }
    std::sort(candidates.begin(), candidates.end(), [&](const Member& a, const Member& b) {
        const Preference& first = preferences.at(a.node);
        const Preference& second = preferences.at(b.node);
        return first != second ? first < second : comes_before(a, b);
    });
}

std::vector<Member> RankTable::arrange(std::vector<Member> candidates, std::size_t nodes_max) {
    sort_by_preference(candidates);
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
    const std::map<NodeId, std::size_t> owners = this->owners();
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
