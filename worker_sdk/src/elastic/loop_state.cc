// SPDX-License-Identifier: Apache-2.0
//
// How a Loop gets the state from which a round continues.
#include <regroup/error.h>

#include <chrono>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "worker_sdk/src/elastic/dissent.h"
#include "worker_sdk/src/elastic/loop.h"
#include "worker_sdk/src/elastic/rank_state.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup::elastic {
namespace {

/// How long the others wait until a rank whose replica differs has ended.
constexpr Duration kLastWords = std::chrono::seconds(1);

std::vector<std::uint64_t> gather(ProcessGroup& group, const std::uint64_t& mine) {
    std::vector<std::uint64_t> all(group.world_size());
    group.all_gather(std::span(&mine, 1), std::span(all)).wait();
    return all;
}

}  // namespace

/// Called before the round forms, since new workers need more time for that anyway.
Digests Loop::digests_held() {
    return has_peers() && !fresh_ && !torn_ ? registered_.digests() : Digests();
}

void Loop::bring_state(Digests mine) {
    const Groups groups = round_->groups();
    // Holders of the state prove first that they agree: the loss that ended the last round may have
    // interrupted a comparison.
    const std::vector<RankState> all =
        gather_rank_states(groups.control, {.step = step_,
                                            .samples = samples_,
                                            .history = fresh_ ? link::new_history() : history_,
                                            .layout = registered_.layout(),
                                            .fresh = fresh_ ? 1U : 0U,
                                            .torn = torn_ ? 1U : 0U,
                                            .digest = mine.whole});
    const Origin origin = choose_origin(all);
    if (is_state_lost(all)) {
        give_up_state();
    }
    settle(origin.dissent, mine);
    const bool receives = fresh_ || torn_ || step_ != origin.state.step;
    if (origin.is_needed) {
        // A rank that has the same state already receives the bytes that it has.
        if (receives && groups.control.rank() != origin.rank) {
            torn_ = true;
            reporter_.forget_state();
        }
        registered_.broadcast(groups, origin.rank);
    }
    // From here on this rank has the state, even if another is lost before the comparison.
    step_ = origin.state.step;
    samples_ = origin.state.samples;
    history_ = origin.state.history;
    fresh_ = torn_ = false;
    if (origin.is_needed && groups.control.world_size() > 1) {
        if (receives) {
            mine = registered_.digests();
        }
        settle(find_dissent(gather(groups.control, mine.whole), origin.rank), mine);
    }
    link::enter_history(history_);
    reporter_.committed(step_);
}

void Loop::compare_replicas(const Digests& mine) {
    const std::vector<std::uint64_t> all = gather(round_->control(), mine.whole);
    settle(find_dissent(std::vector<std::optional<std::uint64_t>>(all.begin(), all.end())), mine);
}

/// If replicas differ, the ranks that dissent end, or all ranks without a majority. The others
/// treat that as the loss of a peer.
void Loop::settle(const Dissent& dissent, const Digests& mine) {
    if (!dissent) {
        return;
    }
    const std::string text = registered_.describe(round_->groups(), dissent, mine);
    if (!link_ || dissent.is_of(round_->context.rank)) {
        fails_by_itself_ = true;  // Also if the round has ended in the meantime.
        throw Error(Errc::invalid_argument, text);
    }
    // Aborting the groups now would break connections between healthy peers.
    reporter_.suspend();
    static_cast<void>(
        link_->await_end(round_->context.round, after(SteadyClock().now(), kLastWords)));
    throw Error(Errc::disconnected, text);
}

/// The state is lost, and torn ranks have overwritten their initial state: new processes must begin
/// from the checkpoint.
void Loop::give_up_state() {
    if (torn_) {
        const std::string text =
            "the last rank that had all of the state was lost while it sent it to this one, which "
            "has half of it; the job begins again from its checkpoint";
        if (link_) {
            link_->send(worker_link::Fatal{.kind = worker_link::FatalKind::retry, .text = text});
        }
        throw Error(Errc::system, text);
    }
    // A fresh rank waits here for the end of the round, since torn ranks do not enter this barrier.
    round_->control().barrier().wait();
    throw Error(Errc::disconnected, "the ranks with half a state have not left the round");
}

}  // namespace regroup::elastic
