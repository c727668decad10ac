// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/collective_watch.h"

#include <algorithm>
#include <array>
#include <functional>
#include <string>
#include <string_view>

namespace regroup::agent {

namespace {

using namespace std::string_view_literals;
using rendezvous::CalledCollective;
using rendezvous::GroupPosition;
using worker_link::CollectiveBackend;
using worker_link::CollectiveGroup;
using worker_link::CollectiveKind;
using worker_link::CollectiveSignature;

// In the orders of CollectiveKind, ElementType and CollectiveBackend.
constexpr std::array kKinds{"collective"sv, "all_reduce"sv,     "reduce"sv,     "broadcast"sv,
                            "all_gather"sv, "reduce_scatter"sv, "all_to_all"sv, "gather"sv,
                            "scatter"sv,    "barrier"sv,        "send"sv,       "recv"sv,
                            "collective"sv};
constexpr std::array kTypes{"elements"sv, "int8"sv,        "uint8"sv,      "int32"sv,   "uint32"sv,
                            "int64"sv,    "uint64"sv,      "float16"sv,    "float32"sv, "float64"sv,
                            "bfloat16"sv, "float8_e4m3"sv, "float8_e5m2"sv};
constexpr std::array kBackends{"nccl"sv, "gloo"sv, "cpu"sv, ""sv};
// Numbers that JSON keeps.
constexpr std::uint64_t kIdMask = (std::uint64_t{1} << 53U) - 1;
// The last collectives that are told, besides the one in which the worker is. Without ends any of
// them may be that one.
constexpr std::uint64_t kLastTold = 2;
constexpr std::uint64_t kLastToldWithoutEnds = 15;

template <std::size_t size>
std::string name_in(const std::array<std::string_view, size>& names, std::size_t at) {
    return std::string(at < size ? names[at] : names.front());
}

bool needs_equal_arguments(CollectiveKind kind, CollectiveBackend backend) {
    switch (kind) {
        case CollectiveKind::all_reduce:
        case CollectiveKind::reduce:
        case CollectiveKind::broadcast:
            return true;
        case CollectiveKind::all_gather:
        case CollectiveKind::reduce_scatter:
            return backend == CollectiveBackend::nccl;
        default:
            return false;
    }
}

/// Adds the collective `number` to what the look tells of.
void add_called(const CollectiveGroup& group, std::uint64_t number, GroupLook& look) {
    const CollectiveSignature signature = CollectiveSignature::unpacked(
        group.signatures[number % worker_link::kSignaturesKept].load(std::memory_order_acquire));
    CalledCollective called{.number = number,
                            .kind = name_in(kKinds, static_cast<std::size_t>(signature.kind))};
    RecordedOperation recorded;
    recorded.number = number;
    recorded.name = called.kind;
    recorded.started = number <= look.position.started;
    recorded.completed = number <= look.position.completed;
    if (needs_equal_arguments(signature.kind, group.backend.load(std::memory_order_relaxed))) {
        recorded.elements = signature.elements;
        recorded.type = name_in(kTypes, static_cast<std::size_t>(signature.type));
        called.arguments = std::to_string(signature.elements) + " " + recorded.type;
    }
    look.position.called.push_back(std::move(called));
    look.operations.push_back(std::move(recorded));
}

std::string given_name(const CollectiveGroup& group) {
    std::string name;
    for (const char c : group.name) {
        if (c == '\0') {
            break;
        }
        const auto byte = static_cast<unsigned char>(c);
        name += byte < 0x20 || byte >= 0x7f ? '?' : c;
    }
    return name;
}

std::string words_for(const GroupLook& look) {
    const std::uint32_t size = look.position.size;
    const std::string name = !look.name.empty() ? " " + look.name
                             : size != 0        ? " of " + std::to_string(size) + " ranks"
                                                : "";
    return look.backend + (look.backend.empty() ? "" : " ") + "group" + name;
}

Duration since(std::int64_t at, Instant now) {
    const std::int64_t present = now.time_since_epoch().count();
    return Duration(at > 0 && at < present ? present - at : 0);
}

// A process that stands still, or whose interpreter is locked, does not look for ends.
bool knows_ends(const CollectiveGroup& group, Instant now) {
    const std::int64_t looked_at = group.looked_at.load(std::memory_order_relaxed);
    return group.knows_ends.load(std::memory_order_relaxed) != 0 &&
           (looked_at == 0 ||
            looked_at > now.time_since_epoch().count() - worker_link::kLookIsOldNs);
}

GroupLook look_at(const CollectiveGroup& group, Instant now) {
    GroupLook look;
    GroupPosition& position = look.position;
    position.id = group.id.load(std::memory_order_relaxed) & kIdMask;
    position.size = group.size.load(std::memory_order_relaxed);
    position.rank = group.rank.load(std::memory_order_relaxed);
    look.backend =
        name_in(kBackends, static_cast<std::size_t>(group.backend.load(std::memory_order_relaxed)));
    look.name = given_name(group);
    position.name = words_for(look);
    position.knows_starts = group.knows_starts.load(std::memory_order_relaxed) != 0;
    position.knows_ends = knows_ends(group, now);
    // A collective is entered before it ends: read in this order, the numbers fit together.
    position.completed = group.completed.load(std::memory_order_acquire);
    position.started = group.started.load(std::memory_order_acquire);
    position.entered = std::max(
        {group.entered.load(std::memory_order_acquire), position.started, position.completed});
    const std::uint64_t sent = group.messages_entered.load(std::memory_order_acquire);
    const std::uint64_t arrived = group.messages_completed.load(std::memory_order_acquire);
    look.events = position.completed + position.started + position.entered + sent + arrived;

    const std::uint64_t present = position.knows_ends ? position.completed + 1 : position.entered;
    const auto slot = [](std::uint64_t number) { return number % worker_link::kSignaturesKept; };
    if (present <= position.entered && present != 0 &&
        position.entered - present < worker_link::kSignaturesKept) {
        const std::int64_t entered_at =
            group.entered_at[slot(present)].load(std::memory_order_acquire);
        const std::int64_t before = group.completed_at.load(std::memory_order_relaxed);
        position.stood = since(std::max(entered_at, before), now);
        look.longest =
            Duration(group
                         .longest[worker_link::time_slot(
                             group.signatures[slot(present)].load(std::memory_order_acquire))]
                         .load(std::memory_order_relaxed));
        add_called(group, present, look);
    } else if (present <= position.entered && present != 0) {
        position.stood = since(group.completed_at.load(std::memory_order_relaxed), now);
    }
    if (sent > arrived) {
        position.peer = group.message_peer.load(std::memory_order_relaxed);
        position.stood =
            std::max(position.stood, since(group.message_at.load(std::memory_order_relaxed), now));
    }
    const std::uint64_t told =
        std::min(position.entered, position.knows_ends ? kLastTold : kLastToldWithoutEnds);
    for (std::uint64_t number = position.entered - told + 1; number <= position.entered; ++number) {
        if (number != present) {
            add_called(group, number, look);
        }
    }
    // The program may have gone on meanwhile, and used their places again. That of the next
    // collective may be in change.
    const std::uint64_t next = group.entered.load(std::memory_order_acquire) + 1;
    const auto is_kept = [next](const auto& called) {
        return called.number > next || next - called.number < worker_link::kSignaturesKept;
    };
    std::erase_if(position.called, std::not_fn(is_kept));
    std::erase_if(look.operations, std::not_fn(is_kept));
    return look;
}

std::string words_for(const GroupPosition& position) {
    const std::uint64_t present = position.knows_ends ? position.completed + 1 : position.entered;
    if (present == 0 || present > position.entered) {
        return "in a message of " + position.name;
    }
    const auto called = std::ranges::find(position.called, present, &CalledCollective::number);
    const std::string kind = called == position.called.end() ? "collective" : called->kind;
    return "in " + kind + " " + std::to_string(present) + " of " + position.name;
}

bool is_in_one(const GroupPosition& position) {
    return position.peer || position.entered != position.completed;
}

}  // namespace

std::vector<GroupLook> look_at(const worker_link::CollectivesPage& page, Instant now) {
    std::vector<GroupLook> looks;
    for (const CollectiveGroup& group : page.used()) {
        if (group.state.load(std::memory_order_acquire) == CollectiveGroup::kInUse) {
            looks.push_back(look_at(group, now));
        }
    }
    std::ranges::sort(looks, [](const GroupLook& a, const GroupLook& b) {
        return a.position.stood > b.position.stood;
    });
    return looks;
}

FlightRecord record_of(const std::vector<GroupLook>& groups) {
    FlightRecord record{.recorder = Recorder::agent};
    for (const GroupLook& look : groups) {
        RecordedGroup group;
        group.backend = look.backend;
        group.name = look.name;
        group.id = std::to_string(look.position.id);
        group.operations = look.operations;
        std::ranges::sort(group.operations, {}, &RecordedOperation::number);
        record.groups.push_back(std::move(group));
    }
    return record;
}

Duration CollectiveWatch::limit_of(const GroupLook& group) const {
    constexpr Duration kLongestMost = std::chrono::hours(24 * 365);
    // The first collectives say little about those that come: ranks begin at different times.
    constexpr std::uint64_t kLearnedFrom = 32;
    constexpr int kFirstFloors = 6;
    const bool has_learned = group.position.entered > kLearnedFrom;
    const Duration floor = std::min(limits_.floor, kLongestMost) * (has_learned ? 1 : kFirstFloors);
    // The page may hold anything.
    const Duration seen = std::clamp(group.longest, Duration::zero(), kLongestMost);
    const double longest = static_cast<double>(seen.count()) * limits_.factor;
    return std::min(std::max(floor, Duration(static_cast<Duration::rep>(longest))),
                    limits_.most.value_or(Duration::max()));
}

std::optional<rendezvous::Hang> CollectiveWatch::look(Instant now,
                                                      std::span<const WorkerGroups> workers) {
    const Duration elapsed = looked_at_ ? now - *looked_at_ : Duration::zero();
    const bool on_time = elapsed <= 2 * interval_;
    looked_at_ = now;
    auto before = std::exchange(known_, {});
    std::optional<rendezvous::Hang> longest;
    for (const WorkerGroups& worker : workers) {
        Duration least_still = Duration::max();
        for (const GroupLook& group : worker.groups) {
            Known& known = known_[{worker.pid, group.position.id}];
            const auto found = before.find({worker.pid, group.position.id});
            known.events = group.events;
            if (found != before.end() && found->second.events == group.events) {
                known.still = found->second.still + (on_time ? elapsed : Duration::zero());
            }
            least_still = std::min(least_still, known.still);
        }
        for (const GroupLook& group : worker.groups) {
            // If ends are not known, a group that is no longer used looks like one that waits.
            const Duration still = group.position.knows_ends
                                       ? known_[{worker.pid, group.position.id}].still
                                       : least_still;
            const Duration stood = std::min(group.position.stood, still + interval_);
            const Duration limit = limit_of(group);
            if (!is_in_one(group.position) || stood <= limit ||
                (longest && stood <= longest->stood)) {
                continue;
            }
            longest.emplace();
            longest->rank = worker.rank;
            longest->text = "rank " + std::to_string(worker.rank) + " has been " +
                            words_for(group.position) + " for " + format_duration(stood) +
                            " (limit " + format_duration(limit) + ")";
            longest->in_collective = true;
            longest->only_told = !limits_.most || stood <= *limits_.most;
            longest->stood = stood;
        }
    }
    return longest;
}

}  // namespace regroup::agent
