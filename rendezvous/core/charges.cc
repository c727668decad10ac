// SPDX-License-Identifier: Apache-2.0
//
// Charges for the end of a round, and the verdicts.
#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/rendezvous_core.h"

namespace regroup::rendezvous {

namespace {

// At most one in this many nodes is quarantined for failures at a time.
constexpr std::size_t kQuarantinePart = 4;
// A worker cannot start because a node lacks something for the moment, such as processes.
constexpr Duration kShortagePause = std::chrono::seconds(1);

}  // namespace

std::optional<Verdict> RendezvousCore::charge(Instant now) {
    const Judgement& judgement = round_.judgement;
    // A restart cannot help, even if nodes were lost too.
    if (judgement.failure && reaction_to(*judgement.failure) == Reaction::fail) {
        const bool said = judgement.failure->kind == FailureKind::user_error;
        Ending ending(said ? Ending::Kind::worker_said_final : Ending::Kind::exit_code_final,
                      Cause::Failed{*judgement.failure});
        ending.exit_code = shell_exit_code(*judgement.failure);
        return failed(std::move(ending));
    }
    const Duration lasted = *round_.told_at - round_.began;
    switch (judgement.charge) {
        case Judgement::Charge::none:
            return std::nullopt;
        case Judgement::Charge::failure:
            return charge_failure(now);
        case Judgement::Charge::network: {
            // No node can be blamed. The back-off limits how often the job tries to connect.
            const auto ruling = budget_.charge(Charge::severed, round_.id, lasted);
            if (ruling.delay > Duration::zero()) {
                back_off_until_ = after(now, ruling.delay);
            }
            return std::nullopt;
        }
        case Judgement::Charge::losses:
            break;
    }
    for (const std::string& name : judgement.lost) {
        count_failure(now, name);
    }
    const auto ruling = budget_.charge(Charge::loss, round_.id, lasted,
                                       static_cast<std::uint32_t>(judgement.lost.size()));
    if (ruling.answer != RestartBudget::Answer::exhausted) {
        return std::nullopt;
    }
    Ending ending(Ending::Kind::losses_used, judgement.cause);
    ending.allowed = *policy_.budgets.losses;
    Verdict verdict = failed(std::move(ending));
    verdict.author = Author(Author::Kind::rendezvous);
    verdict.exit_code = 1;
    verdict.failure.reset();
    return verdict;
}

Reaction RendezvousCore::reaction_to(const WorkerFailure& failure) const {
    switch (failure.kind) {
        case FailureKind::user_error:
            return Reaction::fail;
        case FailureKind::retry:
            return Reaction::retry;
        case FailureKind::bad_node:
            return Reaction::replace_node;
        case FailureKind::hang:
            return Reaction::restart;
        case FailureKind::failure:
            break;
    }
    const auto found = policy_.on_exit.find(shell_exit_code(failure));
    const Reaction reaction = found == policy_.on_exit.end() ? Reaction::restart : found->second;
    // A program that has run in this job is no mistake on the command line: the node is to blame.
    const bool by_node =
        !failure.start_error.empty() && (failure.may_start_later || program_has_run_);
    return by_node && reaction == Reaction::fail ? Reaction::restart : reaction;
}

std::optional<Verdict> RendezvousCore::charge_failure(Instant now) {
    const WorkerFailure& failure = *round_.judgement.failure;
    const Cause cause = Cause::Failed{failure};
    const Reaction reaction = reaction_to(failure);
    Charge charge = Charge::retry;
    if (reaction == Reaction::replace_node) {
        if (nodes_.size() == 1 && nodes_.begin()->second.offer.alone) {
            Ending ending(Ending::Kind::no_other_node, cause);
            ending.names = {failure.node};
            return failed(std::move(ending));
        }
        failures_.quarantine(failure.node, cause, true, now);
        note_quarantined(now, failure.node);
    } else if (reaction == Reaction::restart) {
        charge = failure.kind == FailureKind::hang ? Charge::hang : Charge::failure;
        if (!round_.judgement.blameless && !failure.by_silence) {
            count_failure(now, failure.node);
        }
    }
    const auto ruling = budget_.charge(charge, round_.id, *round_.told_at - round_.began);
    switch (ruling.answer) {
        case RestartBudget::Answer::again: {
            const Duration least =
                failure.may_start_later ? kShortagePause : Duration(Duration::zero());
            if (const Duration delay = std::max(ruling.delay, least); delay > Duration::zero()) {
                back_off_until_ = after(now, delay);
            }
            return std::nullopt;
        }
        case RestartBudget::Answer::exhausted: {
            const bool hang = charge == Charge::hang && policy_.budgets.hangs.has_value();
            Ending ending(hang ? Ending::Kind::hangs_used : Ending::Kind::restarts_used, cause);
            ending.allowed = hang ? *policy_.budgets.hangs : policy_.restarts_max;
            return failed(std::move(ending));
        }
        case RestartBudget::Answer::no_progress:
            break;
    }
    Ending ending(Ending::Kind::no_progress, round_.judgement.cause);
    ending.rounds = budget_.rounds_without_progress();
    ending.step = budget_.step();
    ending.allowed = policy_.budgets.no_progress_max;
    Verdict verdict = failed(std::move(ending));
    verdict.author = Author(Author::Kind::rendezvous);
    verdict.exit_code = kExitNoProgress;
    return verdict;
}

void RendezvousCore::count_failure(Instant now, const std::string& name) {
    std::size_t others = 0;
    std::set<std::string> known{name};
    for (const auto& [id, node] : nodes_) {
        const bool counts = node.offer.name != name && !node.wish && !detector_.suspects(id) &&
                            !failures_.is_quarantined(node.offer.name);
        others += counts ? 1 : 0;
        known.insert(node.offer.name);
    }
    for (const auto& [quarantined, entry] : failures_.quarantined()) {
        known.insert(quarantined);
    }
    // Failures on more nodes than this are not the fault of a single node.
    const std::size_t most = std::max<std::size_t>(1, known.size() / kQuarantinePart);
    if (failures_.count(name, now) && others >= policy_.nodes_min &&
        failures_.quarantined().size() < most) {
        failures_.quarantine(name, round_.judgement.cause, false, now);
        note_quarantined(now, name);
    }
}

// The verdict blames the failure of the last round, if there is one.
Verdict RendezvousCore::failed(Ending ending) const {
    const std::optional<WorkerFailure>& failure = round_.judgement.failure;
    Verdict verdict;
    verdict.outcome = Outcome::failed;
    verdict.author =
        failure ? Author(Author::Kind::node, failure->node) : Author(Author::Kind::rendezvous);
    verdict.exit_code = failure ? shell_exit_code(*failure) : 1;
    verdict.reason = std::move(ending);
    verdict.failure = failure;
    return verdict;
}

void RendezvousCore::close_finished(Instant now) {
    // The boundary at which the round was to change may have been the end of the training.
    ledger_.stopped(now, round_.cause_of_end());
    Verdict verdict;
    verdict.outcome = Outcome::succeeded;
    verdict.exit_code = 0;
    verdict.author = Author(Author::Kind::workers);
    verdict.reason = Ending(Ending::Kind::finished);
    close(now, std::move(verdict));
}

void RendezvousCore::close_drained(Instant now) {
    Verdict verdict;
    verdict.outcome = Outcome::stopped;
    verdict.exit_code = kExitRequeue;
    verdict.author = Author(Author::Kind::node, round_.change->author);
    verdict.reason = Ending(Ending::Kind::drained, round_.change->cause);
    if (round_.end) {
        verdict.failure = round_.evidence.judge(*round_.end).failure;
    }
    if (verdict.failure) {
        verdict.reason.meanwhile = *verdict.failure;
    }
    ledger_.stopped(now, round_.change->cause);
    close(now, std::move(verdict));
}

void RendezvousCore::close_too_few_left(Instant now) {
    Ending ending(Ending::Kind::too_few_left, round_.judgement.cause);
    ending.names.assign(round_.finished_and_gone.begin(), round_.finished_and_gone.end());
    close(now, failed(std::move(ending)));
}

void RendezvousCore::close_nobody_came(Instant now) {
    Ending ending(Ending::Kind::nobody_came, Cause::Failed{*round_.judgement.failure});
    ending.waited = Duration::max();
    for (const auto& [id, assignment] : round_.members) {
        const Node& node = nodes_.at(id);
        if (gives_up_at(node) <= give_up_at_) {
            ending.waited = std::min(ending.waited, node.offer.join_timeout);
        }
    }
    for (const auto& [name, entry] : failures_.quarantined()) {
        ending.quarantined.push_back({name, entry.why, {}});
    }
    close(now, failed(std::move(ending)));
}

void RendezvousCore::close_stopped(Instant now) {
    Verdict verdict;
    verdict.outcome = Outcome::stopped;
    verdict.author = stop_->author;
    verdict.reason = stop_->reason;
    close(now, std::move(verdict));
}

void RendezvousCore::close(Instant now, Verdict verdict) {
    tell_recovered(now, ledger_.close(now, verdict.outcome == Outcome::succeeded));
    phase_ = Phase::closed;
    verdict.restarts = budget_.restarts();
    verdict.goodput = ledger_.goodput();
    verdict.goodput.lasted = first_began_ ? now - *first_began_ : Duration::zero();
    verdict_ = std::move(verdict);
    note(now, JobEvent::Kind::closed).detail = Boxed<Verdict>(*verdict_);
    round_.members.clear();
    round_.inquiry.reset();
    round_.trains_since.reset();
    for (auto& [id, node] : nodes_) {
        place(now, id, node);
        concern(id);
    }
}

}  // namespace regroup::rendezvous
