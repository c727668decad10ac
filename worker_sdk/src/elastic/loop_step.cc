// SPDX-License-Identifier: Apache-2.0
//
// How a step of a Loop is carried out and committed.
#include <regroup/error.h>

#include <cstdint>
#include <functional>
#include <span>
#include <string>
#include <vector>

#include "worker_sdk/src/elastic/loop.h"

namespace regroup::elastic {

SampleRange Loop::take(std::uint64_t count) {
    require_step_open("take");
    if (taken_) {
        throw Error(Errc::invalid_argument, "take() was called before in step " +
                                                std::to_string(step_) + "; once per step");
    }
    taken_ = count;
    return {.first = samples_, .last = samples_ + count};
}

void Loop::require_step_open(const char* call) const {
    mark_.require(call);
    if (stage_ != Stage::open || applying_) {
        throw Error(Errc::invalid_argument,
                    std::string(call) + "() in a step that " +
                        (applying_                    ? "is being committed"
                         : stage_ == Stage::committed ? "has been committed"
                                                      : "has been finished"));
    }
}

/// On the CPU the vote is ordered after all operations of this rank; on a GPU they are in a stream.
void Loop::settle_operations() {
    if (round_->own_control) {
        round_->steps->barrier().wait();
    }
}

void Loop::commit(const std::function<void()>& apply) {
    begin_commit();
    if (apply) {
        apply();
    }
    end_commit();
}

void Loop::begin_commit() {
    require_step_open("commit");
    settle_operations();
    clock_.reach_commit(now(), meter_->waited());
    const Verdict verdict = vote_on_step({});
    pausing_ = verdict.pauses;
    some_leave_ = verdict.leaves;
    // A rank that does not know of the end yet commits, and the others get its state. So no rank is
    // two steps behind.
    if (link_ && link_->ended(round_->context.round)) {
        throw Error(Errc::fenced, "step " + std::to_string(step_) + " is not committed: round " +
                                      std::to_string(round_->context.round) + " is over");
    }
    clock_.begin_apply(now());
    applying_ = true;
}

void Loop::end_commit() {
    mark_.require("commit");
    if (!applying_) {
        throw Error(Errc::invalid_argument, "end_commit() without begin_commit()");
    }
    registered_.keep_buffers();
    applying_ = false;
    orders_->commit();
    const Instant committed_at = now();
    const link::StepTimes times = clock_.close(committed_at);
    window_work_ += times.data + times.compute;
    // Each step of the job is counted by one process.
    if (round_->context.rank == 0) {
        telemetry_.count_step(times, taken_.value_or(0));
    }
    ++step_;
    samples_ += taken_.value_or(0);
    stage_ = Stage::committed;
    reporter_.committed(step_, committed_at);
    if (round_steps_++ == 0) {
        tell_resumed();
    }
    if (pausing_) {
        meet_at_boundary(some_leave_);
    }
}

void Loop::meet_at_boundary(bool some_leave) {
    if (some_leave && has_peers()) {
        compare_replicas(registered_.digests());  // They will save this state.
    }
    if (some_leave && departure_listener_) {
        announce_departure();
    }
    try {
        // Then every rank has the result of the vote, and the round may end.
        round_->control().barrier().wait();
        all_paused_ = true;
    } catch (const Error&) {
        // Some ranks may not have committed; they get the state in the next round. Until then a
        // leaving rank must not save, so that all leaving ranks save the same step.
        return;
    }
}

/// All ranks of the round call it.
void Loop::announce_departure() {
    ElasticDeparture departure{
        .context = &round_->context, .group = round_->steps.get(), .step = step_};
    const std::uint8_t mine = leaves_now() ? 1 : 0;
    std::vector<std::uint8_t> all(round_->context.world_size);
    round_->control().all_gather(std::span(&mine, 1), std::span(all)).wait();
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] != 0) {
            departure.ranks.push_back(rank);
        }
    }
    departure_listener_(departure);
}

/// Completes `ballot`, which says what is special about this step.
Verdict Loop::vote_on_step(Ballot ballot) {
    const std::uint64_t round = round_->context.round;
    if (link_ && link_->ended(round)) {
        throw Error(Errc::fenced, "step " + std::to_string(step_) + " is not committed: round " +
                                      std::to_string(round) + " is over");
    }
    voting_ = true;
    ballot.step = step_;
    ballot.samples = taken_.value_or(0);
    ballot.pauses = link_ && link_->pause_wanted(round);
    ballot.leaves = leaves_now();
    return vote(round_->control(), ballot);
}

}  // namespace regroup::elastic
