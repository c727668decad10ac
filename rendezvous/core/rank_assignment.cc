// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/rank_assignment.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <ranges>
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

RankTable::Vacancies RankTable::vacancies(std::span<const Candidate> candidates) const {
    std::vector<bool> taken(homes_.size());
    for (const Candidate& candidate : candidates) {
        if (candidate.home) {
            taken[*candidate.home] = true;
        }
    }
    Vacancies result;
    for (std::size_t slot = 0; slot < homes_.size(); ++slot) {
        if (!taken[slot]) {
            for_each_beginning(homes_[slot].rank_key, [&](std::string_view beginning) {
                result[std::string(beginning)].insert(slot);
                return true;
            });
        }
    }
    return result;
}

void RankTable::settle(std::span<Candidate> candidates) {
    Vacancies vacant = vacancies(candidates);
    const std::set<std::size_t>& all_vacant = vacant[""];
    std::multimap<std::string, std::size_t> vacant_by_name;
    for (const std::size_t slot : all_vacant) {
        vacant_by_name.emplace(homes_[slot].name, slot);
    }
    const auto give = [&](Candidate& candidate, std::size_t slot) {
        if (slot == homes_.size()) {
            homes_.emplace_back();
        }
        for_each_beginning(homes_[slot].rank_key, [&](std::string_view beginning) {
            const auto under = vacant.find(beginning);
            return under != vacant.end() && under->second.erase(slot) > 0;
        });
        const Member& member = *candidate.member;
        owners_.erase(homes_[slot].node);
        homes_[slot] = Home{member.node, member.offer.name, member.offer.rank_key};
        owners_.emplace(member.node, slot);
        candidate.home = slot;
    };
    // First the nodes that claim a slot or come back under a known name, so that no other node
    // takes their slots.
    for (Candidate& candidate : candidates) {
        if (candidate.home) {
            continue;
        }
        const Offer& offer = candidate.member->offer;
        if (offer.slot) {
            if (all_vacant.contains(*offer.slot)) {
                give(candidate, *offer.slot);
            }
            continue;
        }
        // Each entry is looked at once, however many nodes share a name.
        auto [own, last] = vacant_by_name.equal_range(offer.name);
        while (own != last && !all_vacant.contains(own->second)) {
            own = vacant_by_name.erase(own);
        }
        if (own != last) {
            give(candidate, own->second);
        }
    }
    // Then those that share most switches with a free slot.
    for (std::size_t count = kSwitchesMax; count > 0; --count) {
        for (Candidate& candidate : candidates) {
            const auto beginning =
                candidate.home ? std::nullopt : switches(candidate.member->offer.rank_key, count);
            const auto near = beginning ? vacant.find(*beginning) : vacant.end();
            if (near != vacant.end() && !near->second.empty()) {
                give(candidate, *near->second.begin());
            }
        }
    }
    for (Candidate& candidate : candidates) {
        if (!candidate.home) {
            give(candidate, all_vacant.empty() ? homes_.size() : *all_vacant.begin());
        }
    }
}

void RankTable::sort_by_preference(std::vector<Candidate>& candidates) const {
    std::vector<Candidate> staying = candidates;
    std::erase_if(staying, [](const Candidate& candidate) { return candidate.member->leaves; });
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
    std::vector<std::pair<Preference, Candidate>> ranked;
    ranked.reserve(candidates.size());
    for (const Candidate& candidate : candidates) {
        const Member& member = *candidate.member;
        const std::uint32_t slot =
            member.offer.slot.value_or(std::numeric_limits<std::uint32_t>::max());
        ranked.emplace_back(Preference(member.leaves, !candidate.home, member.held_step == 0, slot,
                                       !member.warm, kSwitchesMax + 1 - nearness(member)),
                            candidate);
    }
    std::ranges::sort(ranked, [](const auto& a, const auto& b) {
        return a.first != b.first ? a.first < b.first
                                  : comes_before(*a.second.member, *b.second.member);
    });
    std::ranges::copy(ranked | std::views::values, candidates.begin());
}

std::vector<Member> RankTable::arrange(const std::vector<Member>& members, std::size_t nodes_max) {
    std::vector<Candidate> candidates;
    candidates.reserve(members.size());
    for (const Member& member : members) {
        const auto owner = owners_.find(member.node);
        candidates.push_back(
            {&member, owner == owners_.end() ? std::nullopt : std::optional(owner->second)});
    }
    sort_by_preference(candidates);
    if (candidates.size() > nodes_max) {
        // The round continues from the latest state: the first node that has it must be included.
        const auto furthest = std::ranges::max_element(
            candidates, {}, [](const Candidate& candidate) { return candidate.member->held_step; });
        if (const auto last = candidates.begin() + static_cast<std::ptrdiff_t>(nodes_max) - 1;
            furthest > last) {
            std::iter_swap(furthest, last);
        }
        candidates.resize(nodes_max);
    }
    settle(candidates);
    // Homes may have gaps and exceed the world; explicit slots and homes below its size are kept,
    // the others fill the gaps in order.
    std::vector<const Member*> world(candidates.size());
    std::vector<const Member*> displaced;
    const auto wanted = [](const Candidate& candidate) {
        return std::tuple(!candidate.member->offer.slot,
                          candidate.member->offer.slot.value_or(*candidate.home));
    };
    std::ranges::sort(candidates, {}, wanted);
    for (const Candidate& candidate : candidates) {
        const std::size_t slot = std::get<1>(wanted(candidate));
        if (slot < world.size() && world[slot] == nullptr) {
            world[slot] = candidate.member;
        } else {
            displaced.push_back(candidate.member);
        }
    }
    std::size_t gap = 0;
    for (const Member* member : displaced) {
        while (world[gap] != nullptr) {
            ++gap;
        }
        world[gap] = member;
    }
    std::vector<Member> result;
    result.reserve(world.size());
    for (const Member* member : world) {
        result.push_back(*member);
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
