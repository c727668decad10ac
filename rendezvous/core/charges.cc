// SPDX-License-Identifier: Apache-2.0
//
// Charges for the end of a round, and the verdicts.
#include <algorithm>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/transitions.h"

namespace regroup::rendezvous::core {

namespace {

// At most one in this many nodes is quarantined for failures at a time.
constexpr std::size_t kQuarantinePart = 4;
// A worker cannot start because a node lacks something for the moment, such as processes.
constexpr Duration kShortagePause = std::chrono::seconds(1);

// The verdict blames the failure of the last round, if there is one.
Verdict failed(const Job& job, JobEnding ending) {
    const std::optional<WorkerFailure>& failure = job.round.judgement.failure;
    const Author author =
        failure ? Author(Author::Kind::node, failure->node) : Author(Author::Kind::rendezvous);
    const int exit_code = failure ? shell_exit_code(*failure) : 1;
    return {Outcome::failed, std::move(ending), author, exit_code, 0, failure, {}};
}

Reaction reaction_to(const Job& job, const WorkerFailure& failure) {
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
    const auto found = job.policy.on_exit.find(shell_exit_code(failure));
    const Reaction reaction = found == job.policy.on_exit.end() ? Reaction::restart : found->second;
    // A program that has run in this job is no mistake on the command line: the node is to blame.
    const bool by_node =
        !failure.start_error.empty() && (failure.may_start_later || job.program_has_run);
    return by_node && reaction == Reaction::fail ? Reaction::restart : reaction;
}

void quarantine(Job& job, Instant now, const std::string& name, Cause cause, bool asked) {
    job.failures.quarantine(name, std::move(cause), asked, now);
    const auto& quarantined = job.failures.quarantined();
    if (const auto found = quarantined.find(name); found != quarantined.end()) {
        JobEvent& event = note(job, now, JobEvent::Kind::quarantined);
        event.node = name;
        event.detail = found->second.why.cause;
    }
}

void count_failure(Job& job, Instant now, const std::string& name) {
    std::size_t others = 0;
    std::set<std::string> known{name};
    for (const auto& [id, node] : job.nodes) {
        const bool counts = node.offer.name != name && !node.wish &&
                            !job.detector.suspects(node.slot) &&
                            !job.failures.is_quarantined(node.offer.name);
        others += counts ? 1 : 0;
        known.insert(node.offer.name);
    }
    for (const auto& [quarantined, entry] : job.failures.quarantined()) {
        known.insert(quarantined);
    }
    // Failures on more nodes than this are not the fault of a single node.
    const std::size_t most = std::max<std::size_t>(1, known.size() / kQuarantinePart);
    if (job.failures.count(name, now) && others >= job.policy.nodes_min &&
        job.failures.quarantined().size() < most) {
        quarantine(job, now, name, job.round.judgement.cause, false);
    }
}

std::optional<Verdict> charge_failure(Job& job, Instant now) {
    const Round& round = job.round;
    const WorkerFailure& failure = *round.judgement.failure;
    const Cause cause = Cause::Failed{failure};
    const Reaction reaction = reaction_to(job, failure);
    Charge charge = Charge::retry;
    if (reaction == Reaction::replace_node) {
        if (job.nodes.size() == 1 && job.nodes.begin()->second.offer.alone) {
            JobEnding ending(JobEnding::Kind::no_other_node, cause);
            ending.names = {failure.node};
            return failed(job, std::move(ending));
        }
        quarantine(job, now, failure.node, cause, true);
    } else if (reaction == Reaction::restart) {
        charge = failure.kind == FailureKind::hang ? Charge::hang : Charge::failure;
        if (!round.judgement.blameless && !failure.by_silence) {
            count_failure(job, now, failure.node);
        }
    }
    const auto ruling = job.budget.charge(charge, round.id, *round.told_at - round.began);
    switch (ruling.answer) {
        case RestartBudget::Answer::again: {
            const Duration least =
                failure.may_start_later ? kShortagePause : Duration(Duration::zero());
            if (const Duration delay = std::max(ruling.delay, least); delay > Duration::zero()) {
                job.formation.back_off_until = after(now, delay);
            }
            return std::nullopt;
        }
        case RestartBudget::Answer::exhausted: {
            const bool hang = charge == Charge::hang && job.policy.budgets.hangs.has_value();
            JobEnding ending(hang ? JobEnding::Kind::hangs_used : JobEnding::Kind::restarts_used,
                             cause);
            ending.allowed = hang ? *job.policy.budgets.hangs : job.policy.restarts_max;
            return failed(job, std::move(ending));
        }
        case RestartBudget::Answer::no_progress:
            break;
    }
    JobEnding ending(JobEnding::Kind::no_progress, round.judgement.cause);
    ending.rounds = job.budget.rounds_without_progress();
    ending.step = job.budget.step();
    ending.allowed = job.policy.budgets.no_progress_max;
    Verdict verdict = failed(job, std::move(ending));
    verdict.author = Author(Author::Kind::rendezvous);
    verdict.exit_code = kExitNoProgress;
    return verdict;
}

}  // namespace

std::optional<Verdict> charge(Job& job, Instant now) {
    const Judgement& judgement = job.round.judgement;
    // A restart cannot help, even if nodes were lost too.
    if (judgement.failure && reaction_to(job, *judgement.failure) == Reaction::fail) {
        const bool said = judgement.failure->kind == FailureKind::user_error;
        JobEnding ending(
            said ? JobEnding::Kind::worker_said_final : JobEnding::Kind::exit_code_final,
            Cause::Failed{*judgement.failure});
        ending.exit_code = shell_exit_code(*judgement.failure);
        return failed(job, std::move(ending));
    }
    const Duration lasted = *job.round.told_at - job.round.began;
    switch (judgement.charge) {
        case Judgement::Charge::none:
            return std::nullopt;
        case Judgement::Charge::failure:
            return charge_failure(job, now);
        case Judgement::Charge::network: {
            // No node can be blamed. The back-off limits how often the job tries to connect.
            const auto ruling = job.budget.charge(Charge::severed, job.round.id, lasted);
            if (ruling.delay > Duration::zero()) {
                job.formation.back_off_until = after(now, ruling.delay);
            }
            return std::nullopt;
        }
        case Judgement::Charge::losses:
            break;
    }
    for (const std::string& name : judgement.lost) {
        count_failure(job, now, name);
    }
    const auto ruling = job.budget.charge(Charge::loss, job.round.id, lasted,
                                          static_cast<std::uint32_t>(judgement.lost.size()));
    if (ruling.answer != RestartBudget::Answer::exhausted) {
        return std::nullopt;
    }
    JobEnding ending(JobEnding::Kind::losses_used, judgement.cause);
    ending.allowed = *job.policy.budgets.losses;
    const Author author(Author::Kind::rendezvous);
    return Verdict{Outcome::failed, std::move(ending), author, 1, 0, {}, {}};
}

void close_finished(Job& job, Instant now) {
    // The boundary at which the round was to change may have been the end of the training.
    job.ledger.stopped(now, job.round.cause_of_end());
    const Author author(Author::Kind::workers);
    close(job, now,
          {Outcome::succeeded, JobEnding(JobEnding::Kind::finished), author, 0, 0, {}, {}});
}

void close_drained(Job& job, Instant now) {
    const Round& round = job.round;
    Verdict verdict;
    verdict.outcome = Outcome::stopped;
    verdict.exit_code = kExitRequeue;
    verdict.author = Author(Author::Kind::node, round.change->author);
    verdict.reason = JobEnding(JobEnding::Kind::drained, round.change->cause);
    if (round.end) {
        verdict.failure = round.evidence.judge(*round.end).failure;
    }
    if (verdict.failure) {
        verdict.reason.meanwhile = *verdict.failure;
    }
    job.ledger.stopped(now, round.change->cause);
    close(job, now, std::move(verdict));
}

void close_too_few_left(Job& job, Instant now) {
    JobEnding ending(JobEnding::Kind::too_few_left, job.round.judgement.cause);
    ending.names.assign(job.round.finish.gone.begin(), job.round.finish.gone.end());
    close(job, now, failed(job, std::move(ending)));
}

void close_nobody_came(Job& job, Instant now) {
    JobEnding ending(JobEnding::Kind::nobody_came, Cause::Failed{*job.round.judgement.failure});
    ending.waited = Duration::max();
    for (const auto& [id, node] : members_of(job)) {
        if (gives_up_at(node) <= job.formation.give_up_at) {
            ending.waited = std::min(ending.waited, node.offer.join_timeout);
        }
    }
    for (const auto& [name, entry] : job.failures.quarantined()) {
        ending.quarantined.push_back({name, entry.why, {}});
    }
    close(job, now, failed(job, std::move(ending)));
}

void close_stopped(Job& job, Instant now) {
    close(job, now, {Outcome::stopped, job.stop->reason, job.stop->author, 1, 0, {}, {}});
}

void close(Job& job, Instant now, Verdict verdict) {
    report_recovered(job, now, job.ledger.close(now, verdict.outcome == Outcome::succeeded));
    job.phase = Phase::closed;
    verdict.restarts = job.budget.restarts();
    verdict.goodput = job.ledger.goodput();
    verdict.goodput.lasted = job.first_began ? now - *job.first_began : Duration::zero();
    job.verdict = std::move(verdict);
    note(job, now, JobEvent::Kind::closed).detail = Boxed<Verdict>(*job.verdict);
    job.round.members = 0;
    job.round.hang.close();
    job.round.trains_since.reset();
    for (auto& [id, node] : job.nodes) {
        place(job, now, id, node);
        job.outbox.concern(node);
    }
}

}  // namespace regroup::rendezvous::core
