// SPDX-License-Identifier: Apache-2.0
#include "agent/explain/explanation.h"

#include <algorithm>
#include <array>
#include <initializer_list>
#include <iterator>
#include <map>
#include <set>
#include <tuple>
#include <utility>

namespace regroup::agent {
namespace {

/// The same group on all ranks. The SDK's groups have a number that differs from rank to rank, and
/// PyTorch's have one that all ranks share.
using GroupKey = std::tuple<Recorder, std::string, std::string, std::string, Ranks>;

GroupKey key_of(Recorder recorder, const RecordedGroup& group) {
    return recorder == Recorder::sdk
               ? GroupKey{recorder, group.backend, group.name, "", group.ranks}
               : GroupKey{recorder, group.backend, group.name, group.id, {}};
}

/// By rank. A rank that has used several groups with this key counts with the last one.
using GroupByRank = std::map<std::uint32_t, const RecordedGroup*>;

/// Groups of an earlier round are of no interest: a worker may live through many rounds.
bool is_of_round(const RecordedGroup& group, std::uint64_t round) {
    return round == 0 || group.round == 0 || group.round == round;
}

/// Another record says more than the agent's. But it may be missing on the rank that hangs, and
/// records of different recorders have no group in common.
bool counts(const FlightRecord& record, bool only_agents) {
    return (record.recorder == Recorder::agent) == only_agents;
}

std::map<GroupKey, GroupByRank> groups_in(const HangFacts& facts) {
    const bool only_agents = std::ranges::all_of(facts.ranks, [](const RankFacts& rank) {
        return std::ranges::all_of(rank.records, [](const FlightRecord& record) {
            return record.recorder == Recorder::agent;
        });
    });
    std::map<GroupKey, GroupByRank> groups;
    for (const RankFacts& rank : facts.ranks) {
        for (const FlightRecord& record : rank.records) {
            if (!counts(record, only_agents)) {
                continue;
            }
            for (const RecordedGroup& group : record.groups) {
                if (is_of_round(group, facts.round)) {
                    groups[key_of(record.recorder, group)][rank.rank] = &group;
                }
            }
        }
    }
    return groups;
}

bool has_record(const RankFacts& rank, Recorder recorder) {
    return std::ranges::any_of(
        rank.records, [&](const FlightRecord& record) { return record.recorder == recorder; });
}

Ranks all_ranks(const HangFacts& facts) {
    Ranks ranks;
    std::ranges::transform(facts.ranks, std::back_inserter(ranks), &RankFacts::rank);
    return ranks;
}

bool is(ProcessState state, const HangFacts& facts, std::uint32_t rank) {
    const RankFacts* const known = find_rank(facts, rank);
    return known != nullptr && known->state == state;
}

/// The first message that is not complete.
const RecordedOperation* open_message(const RecordedGroup& group) {
    const auto open = std::ranges::find_if(group.operations, [&](const RecordedOperation& op) {
        return op.is_message && !op.completed;
    });
    return open == group.operations.end() ? nullptr : &*open;
}

/// The collective `number`, if the record still has it. A broken record may have several with this
/// number; then one that is not complete.
const RecordedOperation* collective(const RecordedGroup& group, std::uint64_t number) {
    const RecordedOperation* found = nullptr;
    for (const RecordedOperation& operation : group.operations) {
        const bool fits = !operation.is_message && operation.number == number;
        if (fits && (found == nullptr || !operation.completed)) {
            found = &operation;
        }
    }
    return found;
}

bool is_beyond(const RecordedGroup& group, std::uint64_t number) {
    return std::ranges::any_of(group.operations, [&](const RecordedOperation& op) {
        return !op.is_message && op.number > number;
    });
}

/// Whether the operation needs the same number of elements on all ranks.
bool has_equal_sizes(const std::string& operation) {
    static const std::array<std::string_view, 8> names{
        "all_reduce",     "allreduce",        "reduce",          "broadcast",
        "_broadcast_oop", "_all_gather_base", "_allgather_base", "_reduce_scatter_base"};
    return std::ranges::find(names, operation) != names.end();
}

/// Whether no rank completes the operation before all have entered it.
bool waits_for_all(const std::string& operation) {
    static const std::array<std::string_view, 12> names{"all_reduce",
                                                        "allreduce",
                                                        "barrier",
                                                        "all_gather",
                                                        "allgather",
                                                        "reduce_scatter",
                                                        "_allgather_base",
                                                        "_all_gather_base",
                                                        "all_to_all",
                                                        "alltoall_base",
                                                        "_reduce_scatter_base",
                                                        "alltoall"};
    return std::ranges::find(names, operation) != names.end();
}

/// Whether a rank has completed the operation, so that no other one can stand in it any more. Its
/// own record may not say so yet: a thread that looks for ends may need a lock of the interpreter.
bool is_over(const RecordedOperation& operation, const GroupByRank& ranks) {
    return waits_for_all(operation.name) && std::ranges::any_of(ranks, [&](const auto& each) {
               const RecordedOperation* const same = collective(*each.second, operation.number);
               return same != nullptr ? same->completed : is_beyond(*each.second, operation.number);
           });
}

void compare(std::string_view what, const std::map<std::string, Ranks>& by_value,
             std::vector<Mismatch>& mismatches) {
    if (by_value.size() < 2) {
        return;
    }
    Mismatch mismatch;
    mismatch.what = what;
    for (const auto& [value, ranks] : by_value) {
        mismatch.sides.push_back({value, ranks});
    }
    std::ranges::sort(mismatch.sides, [](const Mismatch::Side& a, const Mismatch::Side& b) {
        return a.ranks.size() != b.ranks.size() ? a.ranks.size() > b.ranks.size()
                                                : a.value < b.value;
    });
    mismatches.push_back(std::move(mismatch));
}

std::vector<Mismatch> mismatches_of(
    const std::map<std::uint32_t, const RecordedOperation*>& operations) {
    std::map<std::string, Ranks> names;
    std::map<std::string, Ranks> types;
    std::map<std::string, Ranks> sizes;
    for (const auto& [rank, operation] : operations) {
        names[operation->name].push_back(rank);
        if (!operation->type.empty()) {
            types[operation->type].push_back(rank);
        }
        if (operation->elements) {
            sizes[std::to_string(*operation->elements)].push_back(rank);
        }
    }
    std::vector<Mismatch> found;
    compare("operation", names, found);
    if (found.empty() && !operations.empty() && has_equal_sizes(operations.begin()->second->name)) {
        compare("elements", sizes, found);
        compare("type", types, found);
    }
    return found;
}

/// On how many collectives a rank with the SDK stands, if the agent has seen its page.
std::optional<std::uint64_t> issued_on(const HangFacts& facts, std::uint32_t rank) {
    const RankFacts* const known = find_rank(facts, rank);
    return known != nullptr ? known->operations : std::nullopt;
}

/// A rank without a record, such as a stopped one, has not entered the collective if it has issued
/// fewer operations than all ranks that have.
void sort_out_unknown(const HangFacts& facts, StuckCollective& stuck) {
    std::optional<std::uint64_t> least;
    for (const std::uint32_t rank : stuck.entered) {
        const auto issued = issued_on(facts, rank);
        if (!issued || stuck.recorder != Recorder::sdk) {
            return;
        }
        least = std::min(least.value_or(*issued), *issued);
    }
    Ranks still_unknown;
    for (const std::uint32_t rank : std::exchange(stuck.unknown, {})) {
        const auto issued = issued_on(facts, rank);
        (issued && least && *issued < *least ? stuck.not_entered : still_unknown).push_back(rank);
    }
    stuck.unknown = std::move(still_unknown);
    std::ranges::sort(stuck.not_entered);
}

void set_members(const HangFacts& facts, const GroupByRank& ranks, StuckCollective& stuck) {
    std::set<std::uint32_t> members;
    for (const auto& [rank, group] : ranks) {
        members.insert(group->ranks.begin(), group->ranks.end());
    }
    if (members.empty() && stuck.group == "default_pg") {
        const Ranks all = all_ranks(facts);
        members.insert(all.begin(), all.end());
    } else if (members.empty()) {
        stuck.members_are_known = false;
    }
    for (const auto& [rank, group] : ranks) {
        members.insert(rank);
    }
    stuck.members.assign(members.begin(), members.end());
}

/// Sorts the members by what they have done about the collective `stuck.number`.
void sort_members(const HangFacts& facts, const GroupByRank& ranks, StuckCollective& stuck) {
    std::map<std::uint32_t, const RecordedOperation*> operations;
    Ranks not_started;
    for (const std::uint32_t rank : stuck.members) {
        const auto used = ranks.find(rank);
        const RankFacts* const known = find_rank(facts, rank);
        if (used == ranks.end()) {
            const bool knows = known != nullptr && has_record(*known, stuck.recorder);
            (knows ? stuck.not_entered : stuck.unknown).push_back(rank);
        } else if (const auto* operation = collective(*used->second, stuck.number)) {
            operations.emplace(rank, operation);
            (operation->completed ? stuck.completed : stuck.entered).push_back(rank);
            if (!operation->completed && !operation->started) {
                not_started.push_back(rank);
            }
            if (!operation->completed && stuck.frames.empty()) {
                stuck.frames = operation->frames;
            }
        } else if (is_beyond(*used->second, stuck.number)) {
            stuck.completed.push_back(rank);
        } else {
            stuck.not_entered.push_back(rank);
        }
    }
    if (not_started.size() < stuck.entered.size()) {
        stuck.not_started = std::move(not_started);
    }
    stuck.mismatches = mismatches_of(operations);
    sort_out_unknown(facts, stuck);
}

std::optional<StuckCollective> stuck_in(const HangFacts& facts, const GroupKey& key,
                                        const GroupByRank& ranks) {
    std::map<std::uint64_t, const RecordedOperation*> open;  // By number.
    for (const auto& [rank, group] : ranks) {
        for (const RecordedOperation& operation : group->operations) {
            if (!operation.is_message && !operation.completed) {
                open.emplace(operation.number, &operation);
            }
        }
    }
    const auto stands =
        std::ranges::find_if(open, [&](const auto& each) { return !is_over(*each.second, ranks); });
    const RecordedOperation* const first = stands != open.end() ? stands->second
                                           : open.empty()       ? nullptr
                                                                : open.begin()->second;
    if (first == nullptr) {
        return std::nullopt;
    }
    StuckCollective stuck;
    stuck.recorder = std::get<0>(key);
    stuck.backend = std::get<1>(key);
    stuck.group = std::get<2>(key);
    stuck.number = first->number;
    stuck.operation = first->name;
    stuck.type = first->type;
    stuck.elements = first->elements;
    set_members(facts, ranks, stuck);
    sort_members(facts, ranks, stuck);
    return stuck;
}

void add_messages(const GroupKey& key, const GroupByRank& ranks, Explanation& result) {
    for (const auto& [rank, group] : ranks) {
        const RecordedOperation* const open = open_message(*group);
        if (open == nullptr) {
            continue;
        }
        StuckMessage message;
        message.recorder = std::get<0>(key);
        message.group = std::get<2>(key);
        message.rank = rank;
        message.operation = open->name;
        message.number = open->number;
        if (open->peer && *open->peer < group->ranks.size()) {
            message.peer = group->ranks[*open->peer];
        } else if (group->ranks.empty() && group->name == "default_pg") {
            message.peer = open->peer;
        }
        result.messages.push_back(std::move(message));
    }
}

void add(std::set<std::uint32_t>& set, const Ranks& ranks) {
    set.insert(ranks.begin(), ranks.end());
}

Ranks list(const std::set<std::uint32_t>& set) {
    return {set.begin(), set.end()};
}

/// The ranks with another value than most, or all ranks if no value is the more common one.
Ranks minority(const Mismatch& mismatch) {
    const std::size_t most = mismatch.sides.front().ranks.size();
    const bool has_majority = most > mismatch.sides[1].ranks.size();
    std::set<std::uint32_t> ranks;
    for (std::size_t i = has_majority ? 1 : 0; i < mismatch.sides.size(); ++i) {
        add(ranks, mismatch.sides[i].ranks);
    }
    return list(ranks);
}

/// Ranks with fewer committed steps than the others.
Ranks behind(const HangFacts& facts) {
    std::optional<std::uint64_t> most;
    for (const RankFacts& rank : facts.ranks) {
        most = rank.step ? std::max(most.value_or(0), *rank.step) : most;
    }
    Ranks ranks;
    for (const RankFacts& rank : facts.ranks) {
        if (rank.step && *rank.step < *most) {
            ranks.push_back(rank.rank);
        }
    }
    return ranks;
}

/// Whom the ranks that wait are waiting for.
struct Waits {
    std::set<std::uint32_t> waiting;
    std::set<std::uint32_t> awaited;
};

Waits waits_in(const Explanation& explanation) {
    Waits waits;
    for (const StuckCollective& stuck : explanation.collectives) {
        add(waits.waiting, stuck.entered);
        add(waits.awaited, stuck.not_entered);
        add(waits.awaited, stuck.unknown);
    }
    for (const StuckMessage& message : explanation.messages) {
        waits.waiting.insert(message.rank);
        if (message.peer) {
            waits.awaited.insert(*message.peer);
        }
    }
    return waits;
}

/// The first kind with any culprits. False if there is none.
bool choose(std::initializer_list<std::pair<HangKind, Ranks>> kinds, Explanation& result) {
    for (const auto& [kind, culprits] : kinds) {
        if (!culprits.empty()) {
            result.kind = kind;
            result.culprits = culprits;
            return true;
        }
    }
    return false;
}

void judge_records(const HangFacts& facts, Explanation& result) {
    const Waits waits = waits_in(result);
    Ranks gone;
    Ranks finished;
    Ranks elsewhere;
    for (const std::uint32_t rank : waits.awaited) {
        if (is(ProcessState::gone, facts, rank)) {
            gone.push_back(rank);
        } else if (is(ProcessState::finished, facts, rank)) {
            finished.push_back(rank);
        } else if (!waits.waiting.contains(rank)) {
            elsewhere.push_back(rank);
        }
    }
    Ranks different;
    Ranks not_started;
    for (const StuckCollective& stuck : result.collectives) {
        if (different.empty() && !stuck.mismatches.empty()) {
            different = minority(stuck.mismatches.front());
        }
        not_started = not_started.empty() ? stuck.not_started : not_started;
    }
    const bool is_chosen = choose({{HangKind::mismatch, different},
                                   {HangKind::gone, gone},
                                   {HangKind::finished, finished},
                                   {HangKind::not_entered, elsewhere},
                                   {HangKind::circle, list(waits.awaited)},
                                   {HangKind::not_started, not_started}},
                                  result);
    if (!is_chosen) {
        result.kind = result.collectives.empty() ? HangKind::message : HangKind::all_entered;
    }
}

/// Without an open operation in any record.
void judge_positions(const HangFacts& facts, Explanation& result) {
    const auto ranks_that = [&](const auto& holds) {
        Ranks ranks;
        for (const RankFacts& rank : facts.ranks) {
            if (holds(rank)) {
                ranks.push_back(rank.rank);
            }
        }
        return ranks;
    };
    const auto in_state = [&](ProcessState state) {
        return ranks_that([state](const RankFacts& rank) { return rank.state == state; });
    };
    const Ranks late = ranks_that([&](const RankFacts& rank) {
        return !rank.waiting && std::ranges::binary_search(result.behind, rank.rank);
    });
    const Ranks busy = ranks_that([](const RankFacts& rank) { return rank.step && !rank.waiting; });
    const bool some_wait = std::ranges::any_of(facts.ranks, &RankFacts::waiting);
    choose({{HangKind::gone, in_state(ProcessState::gone)},
            {HangKind::stopped, in_state(ProcessState::stopped)},
            {HangKind::finished, in_state(ProcessState::finished)},
            {HangKind::older_step, late},
            {HangKind::not_entered, some_wait ? busy : Ranks()}},
           result);
}

}  // namespace

std::string_view to_string(HangKind kind) noexcept {
    // In the order of HangKind.
    static constexpr std::array<std::string_view, 11> kNames{
        "mismatch",    "gone",    "finished",   "not_entered", "circle", "not_started",
        "all_entered", "message", "older_step", "stopped",     "nothing"};
    return kNames.at(static_cast<std::size_t>(kind));
}

Explanation explain(const HangFacts& facts) {
    Explanation result;
    result.behind = behind(facts);
    for (const auto& [key, ranks] : groups_in(facts)) {
        if (auto stuck = stuck_in(facts, key, ranks)) {
            result.collectives.push_back(std::move(*stuck));
        }
        add_messages(key, ranks, result);
    }
    if (result.collectives.empty() && result.messages.empty()) {
        judge_positions(facts, result);
    } else {
        judge_records(facts, result);
    }
    return result;
}

}  // namespace regroup::agent
