// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/progress_watch.h"

#include <algorithm>
#include <array>
#include <utility>

#include "rendezvous/text/describe.h"

namespace regroup::agent {

namespace {

using worker_link::Phase;

constexpr Duration kIntervalMost = std::chrono::milliseconds(500);
constexpr Duration kIntervalLeast = std::chrono::milliseconds(10);
// A larger limit would overflow.
constexpr Duration kLimitMost = std::chrono::hours(24 * 365);
constexpr int kLooksPerLimit = 8;

bool may_hang(const WorkerLook& look) {
    return look.phase == Phase::forming || look.phase == Phase::training ||
           look.phase == Phase::section;
}

// A worker that forms a group waits for the last member.
bool held_up(const WorkerLook& look) {
    return look.waiting || look.phase == Phase::forming;
}

std::string words_for(const WorkerLook& look) {
    if (look.phase == Phase::forming) {
        return "forming the group of round " + std::to_string(look.round);
    }
    return look.phase == Phase::training ? "in step " + std::to_string(look.step)
                                         : "in section '" + look.section + "'";
}

std::string spent(Duration still, Duration limit) {
    return " for " + format_duration(still) + " (limit " + format_duration(limit) + ")";
}

std::string also(const rendezvous::RankSet& finished) {
    return finished.empty() ? ""
                            : "; " + rendezvous::describe(finished) + " finished with exit code 0";
}

}  // namespace

WorkerLook look_at(const worker_link::WorkerPage& page, std::uint32_t local_rank,
                   std::uint32_t rank, std::int64_t pid) {
    WorkerLook look;
    look.local_rank = local_rank;
    look.rank = rank;
    look.pid = pid;
    look.beats = page.beats.load(std::memory_order_acquire);
    look.phase = page.phase.load(std::memory_order_relaxed);
    look.round = page.round.load(std::memory_order_relaxed);
    look.step = page.step.load(std::memory_order_relaxed);
    look.operations = page.operations_issued.load(std::memory_order_relaxed);
    look.operations_done = page.operations_done.load(std::memory_order_relaxed);
    look.longest = Duration(page.longest.load(std::memory_order_relaxed));
    look.waiting = page.waiting.load(std::memory_order_acquire) != 0;
    // The name may be half written; it is only shown.
    std::array<char, sizeof page.section + 1> name{};
    std::copy(page.section.begin(), page.section.end(), name.begin());
    for (const char* c = name.data(); *c != '\0'; ++c) {
        const auto byte = static_cast<unsigned char>(*c);
        look.section += byte < 0x20 || byte == 0x7f ? '?' : *c;
    }
    look.transfer = page.transfer.kind.load();
    if (look.transfer != worker_link::TransferKind::none) {
        look.transfer_bytes = page.transfer.total.load(std::memory_order_relaxed);
        look.transfer_done = page.transfer.done.load(std::memory_order_relaxed);
    }
    return look;
}

rendezvous::RankPosition position_of(const WorkerLook& look) {
    rendezvous::RankPosition position;
    position.rank = look.rank;
    // Before the group has formed, ranks have different states, so the step does not show which
    // rank is behind.
    position.step = look.phase == Phase::forming ? 0 : look.step;
    position.operations = look.operations;
    position.waiting = held_up(look);
    if (look.waiting) {
        position.doing = look.section;
    } else if (look.phase == Phase::section) {
        position.doing = "section '" + look.section + "'";
    } else if (look.phase == Phase::forming) {
        position.doing = "the forming of its group";
    }
    return position;
}

Duration look_interval(const HangLimits& limits) {
    const Duration shortest = std::min(limits.floor, limits.most.value_or(Duration::max()));
    return std::clamp(shortest / kLooksPerLimit, kIntervalLeast, kIntervalMost);
}

ProgressWatch::ProgressWatch(HangLimits limits, Duration interval)
    : limits_(limits), interval_(interval) {}

Duration ProgressWatch::count(Instant now, std::optional<Instant>& last) const {
    const Duration elapsed = last ? now - *last : Duration::zero();
    last = now;
    return elapsed <= 2 * interval_ ? elapsed : Duration::zero();
}

// A half-changed page counts as a change, which is right: the worker is alive.
void ProgressWatch::absorb(const WorkerLook& look, Duration elapsed) {
    Worker& worker = workers_[look.local_rank];
    if (worker.last.pid != look.pid || worker.last.round != look.round) {
        worker = Worker{look, look.step, Duration::zero()};
    } else if (worker.last == look) {
        worker.still += elapsed;
    } else {
        worker.last = look;
        worker.still = Duration::zero();
    }
}

Duration ProgressWatch::limit_of(const WorkerLook& look) const {
    const auto found = workers_.find(look.local_rank);
    if (!may_hang(look) || found == workers_.end()) {
        return Duration::max();
    }
    // The first step of a round is slower: it builds buckets, connections and caches.
    const bool first_of_round =
        look.phase == Phase::training && look.step == found->second.first_step;
    const Duration limit =
        look.phase == Phase::forming || first_of_round ? limits_.first : usual_limit(look);
    return std::min(limit, limits_.most.value_or(Duration::max()));
}

Duration ProgressWatch::usual_limit(const WorkerLook& look) const {
    if (look.longest == Duration::zero()) {
        return limits_.first;
    }
    const double longest = static_cast<double>(look.longest.count()) * limits_.factor;
    return longest < static_cast<double>(kLimitMost.count())
               ? std::max(limits_.floor, Duration(static_cast<Duration::rep>(longest)))
               : kLimitMost;
}

Duration ProgressWatch::work_left(const WorkerLook& look) const {
    const auto found = workers_.find(look.local_rank);
    const bool works =
        !look.waiting && (look.phase == Phase::training || look.phase == Phase::section);
    const bool has_state = look.step > 0 || look.longest > Duration::zero();
    if (!works || !has_state || found == workers_.end()) {
        return Duration::zero();
    }
    const Duration limit = std::min(usual_limit(look), limits_.most.value_or(Duration::max()));
    return std::max(Duration::zero(), limit - found->second.still);
}

std::optional<rendezvous::Hang> ProgressWatch::look(Instant now, std::span<const WorkerLook> looks,
                                                    std::size_t workers,
                                                    const rendezvous::RankSet& finished) {
    const Duration elapsed = count(now, looked_at_);
    const WorkerLook* stuck = nullptr;  // Works, and makes no progress for the longest time.
    const WorkerLook* held = nullptr;   // Waits for others for the longest time.
    std::size_t held_count = 0;
    const auto worse = [this](const WorkerLook& look, const WorkerLook* than) {
        return than == nullptr ||
               workers_.at(look.local_rank).still > workers_.at(than->local_rank).still;
    };
    for (const WorkerLook& look : looks) {
        absorb(look, elapsed);
        const bool over = workers_.at(look.local_rank).still > limit_of(look);
        const bool waits = may_hang(look) && held_up(look);
        held_count += waits ? 1 : 0;
        if (over && waits && worse(look, held)) {
            held = &look;
        } else if (over && !waits && worse(look, stuck)) {
            stuck = &look;
        }
    }
    if (stuck != nullptr) {
        const Worker& worker = workers_.at(stuck->local_rank);
        return rendezvous::Hang{stuck->rank,
                                "rank " + std::to_string(stuck->rank) + " has been " +
                                    words_for(*stuck) + spent(worker.still, limit_of(*stuck)) +
                                    also(finished),
                                false, worker.still};
    }
    if (held != nullptr && held_count + finished.size() == workers) {
        const Worker& worker = workers_.at(held->local_rank);
        const bool named = held->waiting && !held->section.empty();
        return rendezvous::Hang{held->rank,
                                "rank " + std::to_string(held->rank) + " has been " +
                                    (named ? "waiting in " + held->section + ", step " +
                                                 std::to_string(held->step) + ","
                                           : words_for(*held)) +
                                    spent(worker.still, limit_of(*held)) +
                                    ", and every worker of its node waits" + also(finished),
                                true, worker.still};
    }
    return std::nullopt;
}

void ProgressWatch::reset_silence() {
    outputs_.clear();
    output_looked_at_.reset();
}

Duration ProgressWatch::silence_of(std::uint32_t local_rank) const {
    return local_rank < outputs_.size() ? outputs_[local_rank].silence : Duration::zero();
}

std::optional<rendezvous::Hang> ProgressWatch::look_at_output(Instant now,
                                                              std::span<const std::uint64_t> bytes,
                                                              std::uint32_t first_rank,
                                                              const rendezvous::RankSet& finished) {
    const Duration elapsed = count(now, output_looked_at_);
    outputs_.resize(bytes.size());
    const Output* least = nullptr;
    std::uint32_t longest = 0;
    for (std::uint32_t i = 0; i < outputs_.size(); ++i) {
        Output& output = outputs_[i];
        const bool wrote = std::exchange(output.bytes, bytes[i]) != bytes[i];
        output.silence = wrote ? Duration::zero() : output.silence + elapsed;
        if (finished.contains(first_rank + i)) {
            continue;
        }
        if (least == nullptr || output.silence > outputs_[longest].silence) {
            longest = i;
        }
        if (least == nullptr || output.silence < least->silence) {
            least = &output;
        }
    }
    if (!limits_.most || least == nullptr || least->silence <= *limits_.most) {
        return std::nullopt;
    }
    const Duration most = outputs_[longest].silence;
    std::string text = "no worker of the node has written anything for " +
                       format_duration(least->silence) + " (limit " +
                       format_duration(*limits_.most) + ", --hang-timeout)";
    if (most > least->silence) {
        text += ", rank " + std::to_string(first_rank + longest) + " for " + format_duration(most);
    }
    return rendezvous::Hang{first_rank + longest, text + also(finished), true, least->silence};
}

}  // namespace regroup::agent
