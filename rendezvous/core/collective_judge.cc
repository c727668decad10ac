// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/collective_judge.h"

#include <algorithm>
#include <map>
#include <set>
#include <tuple>
#include <utility>
#include <vector>

namespace regroup::rendezvous {

namespace {

/// A rank in a group.
struct GroupRank {
    const RankPosition* rank = nullptr;
    const GroupPosition* position = nullptr;

    /// The collective in which the rank is; 0: none.
    [[nodiscard]] std::uint64_t present() const {
        const std::uint64_t next = position->completed + 1;
        return position->entered == position->completed ? 0
               : position->knows_ends                   ? next
                                                        : position->entered;
    }
    [[nodiscard]] const CalledCollective* called(std::uint64_t number) const {
        const auto found = std::ranges::find(position->called, number, &CalledCollective::number);
        return found == position->called.end() ? nullptr : &*found;
    }
};

using GroupRanks = std::vector<GroupRank>;

/// A collective in which ranks of a group wait.
struct StuckWait {
    const GroupRanks* members = nullptr;
    std::uint64_t number = 0;
    const CalledCollective* called = nullptr;  ///< By a rank that waits; may be null.
    RankSet waiting{};
    RankSet missing{};  ///< Have not entered it.
};

std::map<std::uint64_t, GroupRanks> groups_of(std::span<const RankPosition> positions) {
    std::map<std::uint64_t, GroupRanks> groups;
    for (const RankPosition& rank : positions) {
        for (const GroupPosition& position : rank.groups) {
            groups[position.id].push_back({&rank, &position});
        }
    }
    return groups;
}

/// The ranks that have called something else than most ranks of the group.
std::vector<GroupRank> that_differ(const StuckWait& wait) {
    std::map<std::pair<std::string, std::string>, std::vector<GroupRank>> sides;
    for (const GroupRank& member : *wait.members) {
        if (const CalledCollective* const called = member.called(wait.number)) {
            sides[{called->kind, called->arguments}].push_back(member);
        }
    }
    if (sides.size() < 2) {
        return {};
    }
    // Of two equal sides, the one with the higher ranks differs.
    const auto most = std::ranges::max_element(sides, [](const auto& a, const auto& b) {
        return std::tuple(a.second.size(), -std::int64_t{a.second.front().rank->rank}) <
               std::tuple(b.second.size(), -std::int64_t{b.second.front().rank->rank});
    });
    std::vector<GroupRank> result;
    for (auto side = sides.begin(); side != sides.end(); ++side) {
        if (side != most) {
            result.insert(result.end(), side->second.begin(), side->second.end());
        }
    }
    std::ranges::sort(result, {}, [](const GroupRank& member) { return member.rank->rank; });
    return result;
}

/// The first collective that all have entered in which some have called something else; 0: none.
std::uint64_t first_difference(const GroupRanks& members, std::uint64_t entered_by_all) {
    std::set<std::uint64_t> numbers;
    for (const GroupRank& member : members) {
        for (const CalledCollective& called : member.position->called) {
            if (called.number <= entered_by_all) {
                numbers.insert(called.number);
            }
        }
    }
    const auto found = std::ranges::find_if(numbers, [&](std::uint64_t number) {
        return !that_differ({.members = &members, .number = number}).empty();
    });
    return found == numbers.end() ? 0 : *found;
}

/// The first collective of the group in which a rank has been for long. Ranks that have finished do
/// not wait.
std::optional<StuckWait> wait_in(const GroupRanks& members, Duration least,
                                 const RankSet& finished) {
    StuckWait wait{.members = &members};
    bool is_long = false;
    std::uint64_t entered_by_all = members.front().position->entered;
    for (const GroupRank& member : members) {
        entered_by_all = std::min(entered_by_all, member.position->entered);
    }
    for (const GroupRank& member : members) {
        if (finished.contains(member.rank->rank)) {
            continue;
        }
        const std::uint64_t present = member.present();
        is_long = is_long || (!member.position->knows_ends && member.position->stood >= least);
        // If ends are not known, a collective that all have entered may be over.
        const bool may_be_over = !member.position->knows_ends && present <= entered_by_all;
        if (present != 0 && !may_be_over && member.position->stood >= least &&
            (wait.number == 0 || present < wait.number)) {
            wait.number = present;
            wait.called = member.called(present);
        }
    }
    if (wait.number == 0 && is_long) {
        // It may be over. But ranks that have called different things do not go on, and a process
        // that is stopped does not end it.
        wait.number = first_difference(members, entered_by_all);
        const bool has_stopped = std::ranges::any_of(
            members, [](const GroupRank& member) { return member.rank->stopped; });
        if (wait.number == 0 && has_stopped) {
            wait.number = entered_by_all;
        }
        wait.called = members.front().called(wait.number);
    }
    if (wait.number == 0) {
        return std::nullopt;
    }
    for (const GroupRank& member : members) {
        if (member.position->entered < wait.number) {
            wait.missing.add(member.rank->rank);
        } else if (!finished.contains(member.rank->rank)) {
            wait.waiting.add(member.rank->rank);
        }
    }
    return wait;
}

std::string words_for(const CalledCollective& called) {
    return called.kind + (called.arguments.empty() ? "" : " (" + called.arguments + ")");
}

CollectiveWait summary_of(const StuckWait& wait) {
    const std::string& name = wait.members->front().position->name;
    CollectiveWait summary;
    summary.collective = (wait.called != nullptr ? wait.called->kind : "collective") + " " +
                         std::to_string(wait.number) + (name.empty() ? "" : " of " + name) +
                         (wait.called == nullptr || wait.called->arguments.empty()
                              ? ""
                              : " (" + wait.called->arguments + ")");
    summary.waiting = wait.waiting;
    summary.missing = wait.missing;
    return summary;
}

/// All ranks have begun it, as far as that is known of any.
bool is_under_way(const StuckWait& wait) {
    const auto& members = *wait.members;
    const GroupPosition& first = *members.front().position;
    return first.size == members.size() &&
           std::ranges::all_of(members, [&](const GroupRank& member) {
               const GroupPosition& position = *member.position;
               return position.knows_starts && position.knows_ends &&
                      position.started >= wait.number;
           });
}

class WaitsOfRanks {
   public:
    WaitsOfRanks(std::span<const RankPosition> positions, Duration least, const RankSet& finished,
                 const std::function<std::string(std::uint32_t)>& node_of)
        : positions_(positions),
          finished_(finished),
          node_of_(node_of),
          groups_(groups_of(positions)) {
        for (const auto& [id, members] : groups_) {
            if (std::optional<StuckWait> wait = wait_in(members, least, finished)) {
                waits_.push_back(*std::move(wait));
            }
            add_messages(members, least);
        }
    }

    [[nodiscard]] CollectiveVerdict verdict() const {
        CollectiveVerdict result;
        result.culprit = awaited();
        if (!result.culprit) {
            result.culprit = different();
        }
        if (!result.culprit) {
            result.culprit = stopped();
        }
        if (!result.culprit) {
            result.culprit = finished();
        }
        if (!result.culprit) {
            result.culprit = in_circle();
        }
        const auto under_way = std::ranges::find_if(waits_, is_under_way);
        if (!result.culprit && under_way != waits_.end()) {
            result.all_entered =
                "all ranks are in " + summary_of(*under_way).collective + ", and it does not end";
        }
        return result;
    }

   private:
    void add_messages(const GroupRanks& members, Duration least) {
        for (const GroupRank& member : members) {
            if (!member.position->peer || member.position->stood < least ||
                finished_.contains(member.rank->rank)) {
                continue;
            }
            const auto peer =
                std::ranges::find(members, *member.position->peer,
                                  [](const GroupRank& m) { return m.position->rank; });
            if (peer != members.end()) {
                messages_.emplace(member.rank->rank, peer->rank->rank);
            }
        }
    }

    /// The ranks that wait for others.
    [[nodiscard]] std::set<std::uint32_t> waiting() const {
        std::set<std::uint32_t> ranks;
        for (const StuckWait& wait : waits_) {
            for (const GroupRank& member : *wait.members) {
                if (wait.waiting.contains(member.rank->rank) && !wait.missing.empty()) {
                    ranks.insert(member.rank->rank);
                }
            }
        }
        for (const auto& [rank, peer] : messages_) {
            ranks.insert(rank);
        }
        return ranks;
    }

    [[nodiscard]] HangCulprit culprit_at(const RankPosition& rank, const StuckWait* wait) const {
        HangCulprit culprit;
        culprit.kind = finished_.contains(rank.rank) ? HangCulprit::Kind::finished
                                                     : HangCulprit::Kind::awaited;
        culprit.rank = rank.rank;
        culprit.node = node_of_(rank.rank);
        culprit.doing = rank.doing;
        culprit.step = rank.step;
        culprit.activity = rank.activity;
        culprit.others_wait = true;
        if (wait != nullptr) {
            culprit.wait = summary_of(*wait);
        }
        return culprit;
    }

    /// One that others wait for; with `but_not`, none of these.
    [[nodiscard]] std::optional<HangCulprit> first_missing(
        const std::set<std::uint32_t>& but_not) const {
        const RankPosition* first = nullptr;
        const StuckWait* its_wait = nullptr;
        std::uint64_t its_entered = 0;
        const auto consider = [&](const RankPosition& rank, const StuckWait* wait,
                                  std::uint64_t entered) {
            const auto key = [](const RankPosition& r, std::uint64_t count) {
                return std::tuple(!r.stopped, count, r.rank);
            };
            if (!but_not.contains(rank.rank) &&
                (first == nullptr || key(rank, entered) < key(*first, its_entered))) {
                first = &rank;
                its_wait = wait;
                its_entered = entered;
            }
        };
        for (const StuckWait& wait : waits_) {
            for (const GroupRank& member : *wait.members) {
                if (member.position->entered < wait.number) {
                    consider(*member.rank, &wait, member.position->entered);
                }
            }
        }
        for (const auto& [rank, peer] : messages_) {
            const auto found = std::ranges::find(positions_, peer, &RankPosition::rank);
            if (found != positions_.end()) {
                consider(*found, nullptr, 0);
            }
        }
        return first == nullptr ? std::nullopt : std::optional(culprit_at(*first, its_wait));
    }

    [[nodiscard]] std::optional<HangCulprit> awaited() const { return first_missing(waiting()); }
    /// All that others wait for wait themselves.
    [[nodiscard]] std::optional<HangCulprit> in_circle() const { return first_missing({}); }

    [[nodiscard]] std::optional<HangCulprit> different() const {
        for (const StuckWait& wait : waits_) {
            const std::vector<GroupRank> others = that_differ(wait);
            if (others.empty()) {
                continue;
            }
            const GroupRank& first = others.front();
            HangCulprit culprit = culprit_at(*first.rank, &wait);
            culprit.wait->called = words_for(*first.called(wait.number));
            // The collective is what the others have called.
            for (const GroupRank& member : *wait.members) {
                const CalledCollective* const called = member.called(wait.number);
                if (called != nullptr && words_for(*called) != culprit.wait->called) {
                    StuckWait of_others = wait;
                    of_others.called = called;
                    culprit.wait->collective = summary_of(of_others).collective;
                    break;
                }
            }
            return culprit;
        }
        return std::nullopt;
    }

    /// It is in the collective, but NCCL's threads in its process cannot serve it.
    [[nodiscard]] std::optional<HangCulprit> stopped() const {
        for (const StuckWait& wait : waits_) {
            const auto found = std::ranges::find_if(
                *wait.members, [](const GroupRank& member) { return member.rank->stopped; });
            if (found == wait.members->end()) {
                continue;
            }
            HangCulprit culprit = culprit_at(*found->rank, &wait);
            culprit.kind = HangCulprit::Kind::stopped;
            RankSet others;
            for (const GroupRank& member : *wait.members) {
                if (member.rank != found->rank && wait.waiting.contains(member.rank->rank)) {
                    others.add(member.rank->rank);
                }
            }
            culprit.wait->waiting = others;
            return culprit;
        }
        return std::nullopt;
    }

    /// A member that has finished. If it has ended the group before, it is in no position.
    [[nodiscard]] std::optional<HangCulprit> finished() const {
        for (const StuckWait& wait : waits_) {
            const auto found = std::ranges::find_if(*wait.members, [&](const GroupRank& member) {
                return finished_.contains(member.rank->rank);
            });
            if (found != wait.members->end()) {
                return culprit_at(*found->rank, &wait);
            }
            if (!finished_.empty() && wait.members->front().position->size > wait.members->size()) {
                RankPosition elsewhere;
                elsewhere.rank = finished_.ranges().front().first;
                return culprit_at(elsewhere, &wait);
            }
        }
        return std::nullopt;
    }

    std::span<const RankPosition> positions_;
    const RankSet& finished_;
    const std::function<std::string(std::uint32_t)>& node_of_;
    std::map<std::uint64_t, GroupRanks> groups_;
    std::vector<StuckWait> waits_{};
    std::multimap<std::uint32_t, std::uint32_t> messages_{};  // A rank, and the one it waits for.
};

}  // namespace

CollectiveVerdict judge_collectives(std::span<const RankPosition> positions, Duration least,
                                    const RankSet& finished,
                                    const std::function<std::string(std::uint32_t rank)>& node_of) {
    return WaitsOfRanks(positions, least, finished, node_of).verdict();
}

}  // namespace regroup::rendezvous
