// SPDX-License-Identifier: Apache-2.0
//
// What the end of a round costs a RendezvousCore's job: budgets, rests, nodes that are set aside.
#include <algorithm>
#include <utility>

#include "rendezvous/core/rendezvous_core.h"
#include "rendezvous/core/wording.h"

namespace regroup::rendezvous {

namespace {

// At most one in so many nodes is set aside for strikes at a time.
constexpr std::size_t kAsidePart = 4;

std::string all_used(std::uint32_t allowed, const std::string& one, const std::string& many,
                     const char* flag) {
    const std::string limit = std::string(" (") + flag + " " + std::to_string(allowed) + ")";
    if (allowed == 0) {
        return "no " + many + " are allowed" + limit;
    }
    if (allowed == 1) {
        return "the only " + one + " is used" + limit;
    }
    return "all " + std::to_string(allowed) + " " + many + " used" + limit;
}

Verdict failed(std::string author, int exit_code, std::string reason) {
    Verdict verdict;
    verdict.outcome = Outcome::failed;
    verdict.author = std::move(author);
    verdict.exit_code = exit_code;
    verdict.reason = std::move(reason);
    return verdict;
}

}  // namespace

std::optional<Verdict> RendezvousCore::settle(Instant now) {
    // Trying again cannot help, whatever else has happened.
    if (failure_ && reaction_to(*failure_) == Reaction::fail) {
        return hopeless_verdict();
    }
    // A node that is gone explains the failures of its peers; one that went by its own will costs
    // nothing.
    // Nor does one that leaves, is not awaited, and may be gone.
    const bool leaver_may_be_gone =
        std::any_of(members_.begin(), members_.end(), [&](const auto& member) {
            const Node& node = nodes_.at(member.first);
            const bool unknown =
                node.report.round < round_ || node.report.state == NodeState::running;
            return may_be_saving(node) && unknown;
        });
    if (lost_member_ || leaver_may_be_gone) {
        return lost_names_.empty() ? std::nullopt : settle_losses(now);
    }
    if (failure_) {
        return settle_failure(now);
    }
    if (severed_ || given_up_) {
        settle_severed(now);
    }
    return std::nullopt;
}

// Nobody's fault that we could name; but what cannot be connected is not to be tried without end.
void RendezvousCore::settle_severed(Instant now) {
    const RestartBudget::Ruling ruling =
        budget_.charge(Charge::severed, round_, round_ended_ - round_began_);
    if (ruling.delay > Duration::zero()) {
        rest_until_ = after(now, ruling.delay);
    }
}

std::optional<Verdict> RendezvousCore::settle_losses(Instant now) {
    for (const std::string& name : lost_names_) {
        strike(now, name);
    }
    const RestartBudget::Ruling ruling =
        budget_.charge(Charge::loss, round_, round_ended_ - round_began_,
                       static_cast<std::uint32_t>(lost_names_.size()));
    if (ruling.answer == RestartBudget::Answer::exhausted) {
        return losses_verdict();
    }
    return std::nullopt;
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
    return found == policy_.on_exit.end() ? Reaction::restart : found->second;
}

std::optional<Verdict> RendezvousCore::settle_failure(Instant now) {
    const Reaction reaction = reaction_to(*failure_);
    Charge charge = Charge::retry;
    switch (reaction) {
        case Reaction::fail:
            return hopeless_verdict();
        case Reaction::retry:
            break;
        case Reaction::replace_node:
            if (nodes_.size() == 1 && nodes_.begin()->second.offer.alone) {
                return alone_verdict();
            }
            strikes_.set_aside(failure_->node, describe(*failure_) + "; it asks for another node",
                               now, true);
            break;
        case Reaction::restart:
            charge = failure_->kind == FailureKind::hang ? Charge::hang : Charge::failure;
            if (!blameless_ && !failure_->by_silence) {
                strike(now, failure_->node);
            }
            break;
    }
    const RestartBudget::Ruling ruling =
        budget_.charge(charge, round_, round_ended_ - round_began_);
    switch (ruling.answer) {
        case RestartBudget::Answer::again:
            if (ruling.delay > Duration::zero()) {
                rest_until_ = after(now, ruling.delay);
            }
            return std::nullopt;
        case RestartBudget::Answer::exhausted:
            return failure_verdict(charge);
        case RestartBudget::Answer::no_progress:
            return stagnation_verdict();
    }
    return std::nullopt;
}

void RendezvousCore::strike(Instant now, const std::string& name) {
    const auto others = std::count_if(nodes_.begin(), nodes_.end(), [&](const auto& entry) {
        const Node& node = entry.second;
        return node.offer.name != name && !is_leaving(node) && !detector_.suspects(entry.first) &&
               !strikes_.is_aside(node.offer.name);
    });
    std::set<std::string> known{name};
    for (const auto& [id, node] : nodes_) {
        known.insert(node.offer.name);
    }
    for (const auto& [aside, why] : strikes_.aside()) {
        known.insert(aside);
    }
    // What strikes so many nodes is not one of them.
    const std::size_t most = std::max<std::size_t>(1, known.size() / kAsidePart);
    if (strikes_.strike(name, now) && static_cast<std::size_t>(others) >= policy_.nodes_min &&
        strikes_.aside().size() < most) {
        strikes_.set_aside(name, strikes_.too_many() + ", the last one because " + cause_, now,
                           false);
    }
}

void RendezvousCore::pardon(Instant now) {
    update_named(now, strikes_.pardon());
}

void RendezvousCore::update_named(Instant now, const std::vector<std::string>& names) {
    if (names.empty()) {
        return;
    }
    for (const auto& [id, node] : nodes_) {
        if (std::find(names.begin(), names.end(), node.offer.name) != names.end()) {
            update_ready(now, id);
        }
    }
}

Verdict RendezvousCore::failure_verdict(Charge charge) const {
    const bool hang = charge == Charge::hang && policy_.budgets.hangs.has_value();
    const std::string what =
        hang ? all_used(*policy_.budgets.hangs, "hang", "hangs", "--max-hangs")
             : all_used(policy_.restarts_max, "restart", "restarts", "--max-restarts");
    Verdict verdict = failed("node " + failure_->node, shell_exit_code(*failure_),
                             describe(*failure_) + "; " + what);
    verdict.failure = failure_;
    return verdict;
}

Verdict RendezvousCore::hopeless_verdict() const {
    const std::string why = failure_->kind == FailureKind::user_error
                                ? "; it says that trying again cannot help"
                                : "; trying again would not help (--on-exit " +
                                      std::to_string(shell_exit_code(*failure_)) + "=fail)";
    Verdict verdict =
        failed("node " + failure_->node, shell_exit_code(*failure_), describe(*failure_) + why);
    verdict.failure = failure_;
    return verdict;
}

Verdict RendezvousCore::losses_verdict() const {
    return failed(
        "the rendezvous", 1,
        cause_ + "; " +
            all_used(*policy_.budgets.losses, "node loss", "node losses", "--max-node-losses"));
}

Verdict RendezvousCore::stagnation_verdict() const {
    const std::string step = budget_.step() == 0 ? std::string(" without progress")
                                                 : " without one more committed step after step " +
                                                       std::to_string(budget_.step());
    Verdict verdict = failed("the rendezvous", kExitNoProgress,
                             cause_ + "; " + counted(budget_.barren_rounds(), "round") +
                                 " in a row ended" + step + " (--no-progress " +
                                 std::to_string(policy_.budgets.no_progress_max) + ")");
    verdict.failure = failure_;
    return verdict;
}

Verdict RendezvousCore::alone_verdict() const {
    Verdict verdict = failed("node " + failure_->node, shell_exit_code(*failure_),
                             describe(*failure_) + "; it asks for another node than " +
                                 failure_->node + ", and this job can have no other");
    verdict.failure = failure_;
    return verdict;
}

// Whoever gives up would know of no other reason than that no round was formed.
RendezvousCore::Wait RendezvousCore::wait_for_nodes() const {
    Wait wait;
    if (phase_ != Phase::gathering || !failure_ || lost_member_ || is_resting() ||
        ready_.size() >= policy_.nodes_min || !missing_.empty() ||
        nodes_.size() < policy_.nodes_min) {  // Somebody has gone, and that is why.
        return wait;
    }
    for (const NodeId& id : survivors_) {
        const Node& node = nodes_.at(id);
        const Instant until = after(node.stopped_at, node.offer.join_timeout);
        if (node.offer.join_timeout > Duration::zero() && node.report.state == NodeState::stopped &&
            until < wait.until) {
            wait = {until, node.offer.join_timeout};
        }
    }
    return wait;
}

Verdict RendezvousCore::want_verdict(Duration waited) const {
    const std::string what = describe(*failure_);
    std::string reason =
        what + "; no other node came within " + format_duration(waited) + " (--join-timeout)";
    for (const auto& [name, aside] : strikes_.aside()) {
        const std::string same = what + "; ";  // Once is enough.
        reason +=
            "; node " + name + " is set aside: " +
            (aside.reason.starts_with(same) ? aside.reason.substr(same.size()) : aside.reason);
    }
    Verdict verdict =
        failed("node " + failure_->node, shell_exit_code(*failure_), std::move(reason));
    verdict.failure = failure_;
    return verdict;
}

Verdict RendezvousCore::drained_verdict() const {
    Verdict verdict;
    verdict.outcome = Outcome::stopped;
    verdict.exit_code = kExitRequeue;
    verdict.author = evacuated_by_;
    verdict.reason = evacuation_;
    if (failure_) {
        verdict.reason += "; meanwhile " + describe(*failure_);
        verdict.failure = failure_;
    }
    if (std::any_of(members_.begin(), members_.end(),
                    [&](const auto& member) { return lags(nodes_.at(member.first)); })) {
        verdict.reason += "; not all have come to the same step";
    }
    return verdict;
}

Verdict RendezvousCore::departure_verdict() const {
    std::string gone;
    for (const std::string& name : departed_) {
        gone += (gone.empty() ? "" : ", ") + name;
    }
    Verdict verdict = failed(failure_ ? "node " + failure_->node : "the rendezvous",
                             failure_ ? shell_exit_code(*failure_) : 1,
                             cause_ + "; too few nodes remain for a restart, for " + gone +
                                 (departed_.size() == 1 ? " has" : " have") + " finished and left");
    verdict.failure = failure_;
    return verdict;
}

}  // namespace regroup::rendezvous
