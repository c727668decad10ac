// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/evidence.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "rendezvous/base/ensure.h"

namespace regroup::rendezvous {

namespace {

// A cause is copied for each node of the next round.
constexpr std::size_t kGoneNamed = 8;

// True for a failure that may have caused the failures of others.
bool is_more_than_an_error(const WorkerFailure& failure) {
    return outranks(failure, WorkerFailure{});
}

// Workers suspend without an order when they cannot reach their peers. Returns the broken link that
// this node reported, otherwise the first one reported.
const Cause::LinkBroke* why_abandoned(const std::string& node, std::span<const Evidence> before) {
    const Cause::LinkBroke* any = nullptr;
    for (const Evidence& entry : before) {
        if (const auto* broken = entry.as<Evidence::LinkBroken>()) {
            if (broken->link.node == node) {
                return &broken->link;
            }
            any = any == nullptr ? &broken->link : any;
        }
    }
    return any;
}

Cause cause_of(const Evidence& trigger, std::span<const Evidence> before) {
    if (const auto* broken = trigger.as<Evidence::LinkBroken>()) {
        return broken->link;
    }
    if (const auto* abandoned = trigger.as<Evidence::RoundAbandoned>()) {
        if (const auto* link = why_abandoned(abandoned->node, before)) {
            return *link;
        }
        return Cause::Abandoned{abandoned->node, abandoned->store_spent};
    }
    if (const auto* superseded = trigger.as<Evidence::Superseded>()) {
        return superseded->cause;
    }
    if (const auto* behind = trigger.as<Evidence::BegunBehind>()) {
        return behind->cause;
    }
    return {};
}

}  // namespace

bool Evidence::is_decisive() const noexcept {
    if (const auto* gone = as<NodeGone>()) {
        return gone->was_needed;
    }
    if (const auto* abandoned = as<RoundAbandoned>()) {
        return abandoned->ends_round;
    }
    return as<LinkBroken>() == nullptr;
}

// ---- BrokenLinks.

void BrokenLinks::add(std::size_t index, std::uint32_t rank, std::uint32_t peer) {
    const std::size_t first = links_.try_emplace({rank, peer}, index).first->second;
    if (const auto other = links_.find({peer, rank}); other != links_.end()) {
        const std::size_t known = mutual_.value_or(std::numeric_limits<std::size_t>::max());
        mutual_ = std::min({known, first, other->second});
    }
    lost_.insert(peer);
    weigh(rank);
    weigh(peer);
}

void BrokenLinks::add(const Boxed<WorkerFailure>& failure) {
    failed_.try_emplace(failure->rank, failure);
    weigh(failure->rank);
}

// A worker often ends with an error because its peers are gone. A wrong charge may cost the job its
// last restart. A missed charge costs only a back-off, and the failure is charged when it repeats.
void BrokenLinks::weigh(std::uint32_t rank) {
    const auto said = links_.lower_bound({rank, 0});
    const bool outlived = said != links_.end() && said->first.first == rank;
    if (!outlived && lost_.contains(rank) && failed_.contains(rank)) {
        explaining_.insert(rank);
    } else {
        explaining_.erase(rank);
    }
}

Boxed<WorkerFailure> BrokenLinks::explanation() const {
    Boxed<WorkerFailure> best;
    const auto weigh_up = [&best](const Boxed<WorkerFailure>& failure) {
        best = !best || outranks(*failure, *best) ? failure : best;
    };
    if (links_.empty()) {
        for (const auto& [rank, failure] : failed_) {
            weigh_up(failure);
        }
    } else {
        for (const std::uint32_t rank : explaining_) {
            weigh_up(failed_.at(rank));
        }
    }
    return best;
}

// ---- Judge.

Judge::Judge(std::span<const Evidence> entries, std::optional<std::size_t> by)
    : by_change_(!by.has_value()) {
    if (by) {
        const Evidence& trigger = entries[*by];
        trigger_ = cause_of(trigger, entries.first(*by));
        by_link_ = trigger.as<Evidence::LinkBroken>() != nullptr;
        by_network_ = by_link_ || trigger.as<Evidence::RoundAbandoned>() != nullptr;
    }
    for (std::size_t i = 0; i < entries.size(); ++i) {
        consider(entries[i], i == by);
    }
}

void Judge::consider(const Evidence& entry, bool is_trigger) {
    if (const auto* gone = entry.as<Evidence::NodeGone>()) {
        lost_any_ = lost_any_ || gone->was_needed;
        if (++gone_.count <= kGoneNamed) {
            gone_.nodes.push_back({gone->node, gone->how});
        }
        if (gone->was_needed && gone->how.is_charged()) {
            result_.lost.push_back(gone->node);
        }
    } else if (const auto* hung = entry.as<Evidence::HangFound>()) {
        result_.failure = *hung->failure;
        result_.blameless = !hung->proven;
        hung_ = hung->cause;
    } else if (const auto* failed = entry.as<Evidence::WorkerFailed>()) {
        weigh(failed->failure, is_trigger);
    } else if (const auto* abandoned = entry.as<Evidence::RoundAbandoned>()) {
        if (abandoned->store_spent && !spent_) {
            spent_ = abandoned->node;
        }
    }
}

void Judge::weigh(const Boxed<WorkerFailure>& failure, bool is_trigger) {
    const bool counts = is_trigger || (by_network_ && is_more_than_an_error(*failure)) ||
                        failure->kind == FailureKind::user_error ||
                        (failure->announced && !lost_any_);
    if (result_.failure ? outranks(*failure, *result_.failure) : counts) {
        result_.failure = *failure;
        result_.blameless = false;
        hung_ = {};
    }
}

Judgement Judge::judge(const RoundEnd& end, const BrokenLinks& links) const {
    Judgement result = result_;
    const bool store_lost = spent_ && !lost_any_ && result.failure &&
                            result.failure->kind == FailureKind::failure &&
                            !is_more_than_an_error(*result.failure);
    if (store_lost) {
        result.failure.reset();
    } else if (by_network_ && !spent_ && !lost_any_ && !result.failure && !links.mutual()) {
        // If both ends of a link report it, both are alive: the connection itself broke.
        if (const Boxed<WorkerFailure> explanation = links.explanation()) {
            result.failure = *explanation;
        }
    }
    if (lost_any_) {
        result.cause = gone_;
    } else if (result.failure) {
        result.cause = hung_ ? Cause(*hung_) : Cause(Cause::Failed{*result.failure});
    } else if (store_lost) {
        result.cause = Cause::Abandoned{*spent_, true};
    } else {
        result.cause = by_change_ ? end.planned : trigger_;
        if (auto* link = std::get_if<Cause::LinkBroke>(&result.cause.what); link && by_link_) {
            link->mutual = links.contains(link->peer, link->rank);
        }
    }
    if (lost_any_ || end.leaver_may_be_gone) {
        result.charge = result.lost.empty() ? Judgement::Charge::none : Judgement::Charge::losses;
    } else if (result.failure) {
        result.charge = Judgement::Charge::failure;
    } else if (by_network_ || store_lost) {
        result.charge = Judgement::Charge::network;
    }
    return result;
}

// ---- EvidenceLog.

bool EvidenceLog::add(Evidence entry) {
    const std::size_t index = entries_.size();
    if (const auto* broken = entry.as<Evidence::LinkBroken>()) {
        if (links_kept_ == kLinksMax) {
            return false;
        }
        ++links_kept_;
        links_.add(index, broken->link.rank, broken->link.peer);
        link_broke_at_ = link_broke_at_.value_or(entry.at);
    } else if (const auto* failed = entry.as<Evidence::WorkerFailed>()) {
        links_.add(failed->failure);
    } else if (const auto* gone = entry.as<Evidence::NodeGone>()) {
        has_lost_nodes_ = has_lost_nodes_ || gone->was_needed;
    }
    if (entry.is_decisive()) {
        decisive_ = decisive_.value_or(index);
    }
    if (judge_) {
        judge_->add(entry);
    } else {
        entries_.push_back(std::move(entry));
    }
    return true;
}

Judgement EvidenceLog::judge(const RoundEnd& end) const {
    ENSURE(judge_.has_value());
    return judge_->judge(end, links_);
}

}  // namespace regroup::rendezvous
