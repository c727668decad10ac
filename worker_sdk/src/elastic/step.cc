// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/step.h"

#include <regroup/error.h>

#include <vector>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/telemetry_limits.h"
#include "worker_sdk/src/elastic/finish_notes.h"
#include "worker_sdk/src/elastic/gather.h"
#include "worker_sdk/src/group/work.h"

namespace regroup::elastic {
namespace {

/// Sections of this name count as time for data.
constexpr std::string_view kDataSection = "data";

/// How long this thread has waited so far. An exception may have ended training, and the meter with
/// it.
Duration waited() noexcept {
    const WaitMeter* const meter = WaitMeter::current();
    return meter != nullptr ? meter->waited() : Duration{};
}

}  // namespace

void Step::begin_round(RoundRun& round) noexcept {
    round_ = &round;
    stage_ = Stage::closed;
    finishes_ = false;
}

void Step::open() noexcept {
    stage_ = Stage::open;
    finishes_ = false;
    taken_.reset();
    result_ = {};
    clock_.open(now(), waited());
}

SampleRange Step::take(std::uint64_t count) {
    require_open("take");
    if (taken_) {
        throw Error(Errc::invalid_argument, "take() was called before in step " +
                                                std::to_string(number()) + "; once per step");
    }
    taken_ = count;
    return {.first = samples_begin(), .last = samples_begin() + count};
}

void Step::begin_commit() {
    require_open("commit");
    settle_operations();
    clock_.reach_commit(now(), waited());
    result_ = vote({});
    // A rank that does not know of the end yet commits, and the others get its state. So no rank is
    // two steps behind.
    require_round();
    clock_.begin_apply(now());
    stage_ = Stage::applying;
}

void Step::end_commit() {
    mark_.require("commit");
    if (stage_ != Stage::applying) {
        throw Error(Errc::invalid_argument, "end_commit() without begin_commit()");
    }
    replica_.commit(taken_.value_or(0));
    stage_ = Stage::committed;
    const Instant committed_at = now();
    const link::StepTimes times = clock_.close(committed_at);
    // Each step of the job is counted by one process.
    if (round_->context.rank == 0) {
        agent_.telemetry.count_step(times, taken_.value_or(0));
    }
    agent_.reporter.committed(number(), committed_at);
    if (!std::exchange(round_->trains, true)) {
        using Milliseconds = std::chrono::duration<double, std::milli>;
        agent_.send(
            worker_link::Resumed{.round = round_->number(),
                                 .step = number(),
                                 .communicator_ms = Milliseconds(round_->communicator_time).count(),
                                 .state_ms = Milliseconds(round_->state_time).count(),
                                 .first_step_ms = Milliseconds(now() - round_->began).count()});
    }
    if (pauses()) {
        meet();
    }
}

void Step::finish() {
    require_open("finish");
    finishes_ = true;
    note_finish(round_->context, true);
    settle_operations();
    const Digests mine = round_->has_peers() ? replica_.registered().digests() : Digests();
    // The vote itself compares, so that all ranks finish or none does.
    if (!vote({.finishes = true, .digest = mine.whole}).agrees) {
        replica_.compare(*round_, mine);
    }
    try {
        round_->control().barrier().wait();
    } catch (const Error&) {
        // Every rank has voted to finish, so a loss does not matter any more.
    }
    replica_.registered().restore_buffers();
    stage_ = Stage::finished;
    agent_.reporter.finished();
}

void Step::require_open(const char* call) const {
    mark_.require(call);
    const auto refuse = [call](const char* why) {
        throw Error(Errc::invalid_argument, std::string(call) + "() in a step that " + why);
    };
    switch (stage_) {
        case Stage::open:
        case Stage::voting:  // The vote has failed, and this call will.
            return;
        case Stage::closed:
            return refuse("is not open");
        case Stage::applying:
            return refuse("is being committed");
        case Stage::committed:
        case Stage::met:
            return refuse("has been committed");
        case Stage::finished:
            return refuse("has been finished");
    }
}

void Step::require_round() const {
    if (agent_.ended(round_->number())) {
        throw Error(Errc::fenced, "step " + std::to_string(number()) + " is not committed: round " +
                                      std::to_string(round_->number()) + " is over");
    }
}

/// On the CPU the vote is ordered after all operations of this rank; on a GPU they are in a stream.
void Step::settle_operations() const {
    if (round_->own_control) {
        round_->steps->barrier().wait();
    }
}

/// Completes `ballot`, which says what is special about this step.
VoteResult Step::vote(Ballot ballot) {
    require_round();
    stage_ = Stage::voting;
    ballot.step = number();
    ballot.samples = taken_.value_or(0);
    ballot.pauses = agent_.pause_wanted(round_->number());
    ballot.leaves = agent_.leave_wanted(round_->number());
    return elastic::vote(round_->control(), ballot);
}

void Step::meet() {
    if (result_.leaves) {
        replica_.compare(*round_);  // They will save this state.
        announce_departure();
    }
    try {
        // Then every rank has the result of the vote, and the round may end.
        round_->control().barrier().wait();
        stage_ = Stage::met;
    } catch (const Error&) {
        // Some ranks may not have committed; they get the state in the next round. Until then a
        // leaving rank must not save, so that all leaving ranks save the same step.
    }
}

/// All ranks of the round call it.
void Step::announce_departure() const {
    if (!departure_listener_) {
        return;
    }
    ElasticDeparture departure{
        .context = &round_->context, .group = round_->steps.get(), .step = number()};
    const std::uint8_t mine = agent_.leave_wanted(round_->number()) ? 1 : 0;
    const std::vector<std::uint8_t> all = gather(round_->control(), mine);
    for (std::uint32_t rank = 0; rank < all.size(); ++rank) {
        if (all[rank] != 0) {
            departure.ranks.push_back(rank);
        }
    }
    departure_listener_(departure);
}

std::string Step::explain(const Error& error, bool wait_failed) const {
    const bool of_the_group = stage_ == Stage::voting || wait_failed;  // Not of the program.
    if (error.code() != Errc::invalid_argument || !round_->has_peers() || !of_the_group ||
        stage_ == Stage::applying) {
        return "";
    }
    const std::string found = finish_disagreement(round_->context, finishes_);
    return found.empty() ? ""
                         : "step " + std::to_string(number()) + ": " + found +
                               "; all ranks must call it in the same step";
}

void Step::report(std::string_view name, double value) const {
    mark_.require("report");
    if (!is_value_name(name)) {
        throw Error(Errc::invalid_argument,
                    "report(\"" + printable(name.substr(0, 2 * kValueNameBytesMax)) +
                        "\"): the name of a value has 1 to " + std::to_string(kValueNameBytesMax) +
                        " of the characters a to z, 0 to 9 and _, and does not begin with a digit");
    }
    if (!agent_.telemetry.set_value(name, value)) {
        throw Error(Errc::invalid_argument, "report(\"" + std::string(name) +
                                                "\"): this program reports " +
                                                std::to_string(kReportedValuesMax) +
                                                " values already, and there is room for no more");
    }
}

void Step::begin_section(std::string_view name) noexcept {
    agent_.reporter.begin_section(name);
    if (name == kDataSection) {
        clock_.begin_data(now(), waited());
    }
}

void Step::end_section() noexcept {
    agent_.reporter.end_section();
    if (clock_.is_in_data()) {
        clock_.end_data(now(), waited());
    }
}

}  // namespace regroup::elastic
