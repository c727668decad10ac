// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/replica.h"

#include <regroup/error.h>

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker_sdk/src/elastic/gather.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup::elastic {
namespace {

/// How long the others wait until a rank whose replica differs has ended.
constexpr Duration kLastWords = std::chrono::seconds(1);
/// The name of the samples that are consumed, in a snapshot.
constexpr const char* kSamples = "regroup.samples";

}  // namespace

void Replica::resume_at(std::uint64_t step, std::uint64_t samples) noexcept {
    step_ = step;
    samples_ = samples;
}

void Replica::commit(std::uint64_t samples) {
    registered_.keep_buffers();
    orders_->commit();
    ++step_;
    samples_ += samples;
}

Digests Replica::digests_held(const RoundRun& round) {
    return round.has_peers() && condition_ == Condition::whole ? registered_.digests() : Digests();
}

void Replica::bring(const RoundRun& round, Digests held) {
    const Groups groups = round.groups();
    const std::uint64_t history = condition_ == Condition::fresh ? link::new_history() : history_;
    // Holders of the state prove first that they agree: the loss that ended the last round may have
    // interrupted a comparison.
    const std::vector<RankState> all =
        gather(groups.control, RankState{.step = step_,
                                         .samples = samples_,
                                         .history = history,
                                         .layout = registered_.layout(),
                                         .condition = condition_,
                                         .digest = held.whole});
    const Origin origin = choose_origin(all);
    if (is_state_lost(all)) {
        give_up(round);
    }
    if (origin.state.condition == Condition::fresh && load_snapshot(round, origin.state)) {
        return;
    }
    settle(round, origin.dissent, held);
    const bool receives = condition_ != Condition::whole || step_ != origin.state.step;
    if (origin.is_needed) {
        // A rank that has the same state already receives the bytes that it has.
        if (receives && groups.control.rank() != origin.rank) {
            condition_ = Condition::torn;
            agent_.reporter.forget_state();
        }
        registered_.broadcast(groups, origin.rank);
    }
    // From here on this rank has the state, even if another is lost before the comparison.
    step_ = origin.state.step;
    samples_ = origin.state.samples;
    history_ = origin.state.history;
    condition_ = Condition::whole;
    if (origin.is_needed && round.has_peers()) {
        const Digests mine = receives ? registered_.digests() : std::move(held);
        settle(round, find_dissent(gather(groups.control, mine.whole), origin.rank), mine);
    }
    link::enter_history(history_);
    agent_.reporter.committed(step_);
}

void Replica::add_to(snapshot::RankSnapshot& snapshot) {
    registered_.add_to(snapshot);
    snapshot::Entry samples;
    samples.tensor.name = kSamples;
    samples.save = [this] { return std::to_string(samples_); };
    samples.load = [this](std::string_view text) { samples_ = std::stoull(std::string(text)); };
    snapshot.add(std::move(samples));
}

bool Replica::load_snapshot(const RoundRun& round, const RankState& fresh) {
    if (!round.snapshot) {
        return false;
    }
    const std::optional<std::uint64_t> found = round.snapshot->open(true);
    if (!found || *found <= fresh.step) {
        return false;
    }
    condition_ = Condition::torn;
    agent_.reporter.forget_state();
    round.snapshot->fill_entries();
    registered_.keep_buffers();
    step_ = *found;
    history_ = fresh.history;
    condition_ = Condition::whole;
    link::enter_history(history_);
    agent_.reporter.committed(step_);
    return true;
}

void Replica::compare(const RoundRun& round) {
    if (round.has_peers()) {
        compare(round, registered_.digests());
    }
}

void Replica::compare(const RoundRun& round, const Digests& mine) {
    const std::vector<std::uint64_t> all = gather(round.control(), mine.whole);
    settle(round, find_dissent(std::vector<std::optional<std::uint64_t>>(all.begin(), all.end())),
           mine);
}

void Replica::settle(const RoundRun& round, const Dissent& dissent, const Digests& mine) {
    if (!dissent) {
        return;
    }
    const std::string text = registered_.describe(round.groups(), dissent, mine);
    if (!agent_.link || dissent.is_of(round.context.rank)) {
        dissents_ = true;
        throw Error(Errc::invalid_argument, text);
    }
    // Aborting the groups now would break connections between healthy peers.
    agent_.reporter.suspend();
    static_cast<void>(agent_.link->await_end(round.number(), after(now(), kLastWords)));
    throw Error(Errc::disconnected, text);
}

/// The state is lost, and torn ranks have overwritten their initial state: new processes must begin
/// from the checkpoint.
void Replica::give_up(const RoundRun& round) {
    if (condition_ == Condition::torn) {
        const std::string text =
            "the last rank that had all of the state was lost while it sent it to this one, which "
            "has half of it; the job begins again from its checkpoint";
        agent_.send(worker_link::Fatal{.kind = worker_link::FatalKind::retry, .text = text});
        throw Error(Errc::system, text);
    }
    // A fresh rank waits here for the end of the round, since torn ranks do not enter this barrier.
    round.control().barrier().wait();
    throw Error(Errc::disconnected, "the ranks with half a state have not left the round");
}

}  // namespace regroup::elastic
