// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/evidence.h"

#include <algorithm>
#include <set>
#include <utility>

namespace regroup::rendezvous {

namespace {

// Pairs of ranks: the first lost the second.
using Links = std::set<std::pair<std::uint32_t, std::uint32_t>>;

// True for a failure that may have caused the failures of others.
bool is_more_than_an_error(const WorkerFailure& failure) {
    return outranks(failure, WorkerFailure{});
}

Links broken_links(std::span<const Evidence> evidence) {
    Links links;
    for (const Evidence& entry : evidence) {
        if (const auto* broken = entry.as<Evidence::LinkBroken>()) {
            links.emplace(broken->link.rank, broken->link.peer);
        }
    }
    return links;
}

// A worker often ends with an error because its peers are gone. A wrong charge may cost the job its
// last restart. A missed charge costs only a back-off, and the failure is charged when it repeats.
bool may_explain_break(const Links& lost, std::uint32_t rank) {
    const auto said = lost.lower_bound({rank, 0});
    const bool outlived = said != lost.end() && said->first == rank;
    return !outlived &&
           (lost.empty() || std::any_of(lost.begin(), lost.end(),
                                        [&](const auto& link) { return link.second == rank; }));
}

bool is_network(const Evidence* trigger) {
    return trigger != nullptr && (trigger->as<Evidence::LinkBroken>() != nullptr ||
                                  trigger->as<Evidence::RoundAbandoned>() != nullptr);
}

class Judge {
   public:
    Judge(std::span<const Evidence> evidence, const RoundEnd& end)
        : evidence_(evidence),
          end_(end),
          trigger_(end.by ? &evidence[*end.by] : nullptr),
          ends_by_network_(is_network(trigger_)) {}

    Judgement judge() {
        collect();
        excuse_for_store();
        explain_break();
        result_.cause = cause();
        if (lost_any_ || end_.leaver_may_be_gone) {
            result_.charge =
                result_.lost.empty() ? Judgement::Charge::none : Judgement::Charge::losses;
        } else if (result_.failure) {
            result_.charge = Judgement::Charge::failure;
        } else if (ends_by_network_) {
            result_.charge = Judgement::Charge::network;
        }
        return std::move(result_);
    }

   private:
    void collect() {
        for (const Evidence& entry : evidence_) {
            if (const auto* gone = entry.as<Evidence::NodeGone>()) {
                lost_any_ = lost_any_ || gone->was_needed;
                gone_.nodes.push_back({gone->node, gone->how});
                if (gone->was_needed && gone->how.is_charged()) {
                    result_.lost.push_back(gone->node);
                }
            } else if (const auto* hung = entry.as<Evidence::HangFound>()) {
                result_.failure = hung->failure;
                result_.blameless = !hung->proven;
                hung_ = &hung->cause;
            } else if (const auto* failed = entry.as<Evidence::WorkerFailed>()) {
                weigh(entry, failed->failure);
            } else if (const auto* abandoned = entry.as<Evidence::RoundAbandoned>()) {
                if (abandoned->store_spent && spent_ == nullptr) {
                    spent_ = abandoned;
                }
            }
        }
    }
    void weigh(const Evidence& entry, const WorkerFailure& failure) {
        const bool counts =
            &entry == trigger_ || (ends_by_network_ && is_more_than_an_error(failure)) ||
            failure.kind == FailureKind::user_error || (failure.announced && !lost_any_);
        if (result_.failure ? outranks(failure, *result_.failure) : counts) {
            result_.failure = failure;
            result_.blameless = false;
            hung_ = nullptr;
        }
    }
    void excuse_for_store() {
        const std::optional<WorkerFailure>& failure = result_.failure;
        if (spent_ != nullptr && !lost_any_ && failure && failure->kind == FailureKind::failure &&
            !is_more_than_an_error(*failure)) {
            result_.failure.reset();
            ends_by_network_ = true;
            excused_ = true;
        }
    }
    void explain_break() {
        if (spent_ != nullptr || result_.failure || lost_any_ || !ends_by_network_) {
            return;
        }
        const Links lost = broken_links(evidence_);
        if (std::any_of(lost.begin(), lost.end(), [&](const auto& link) {
                return lost.contains({link.second, link.first});
            })) {
            return;  // Both ends are alive: the connection itself broke.
        }
        for (const Evidence& entry : evidence_) {
            const auto* failed = entry.as<Evidence::WorkerFailed>();
            if (failed != nullptr && may_explain_break(lost, failed->failure.rank) &&
                (!result_.failure || failed->failure.rank < result_.failure->rank)) {
                result_.failure = failed->failure;
            }
        }
    }
    Cause cause() const {
        if (lost_any_) {
            return gone_;
        }
        if (result_.failure) {
            return hung_ != nullptr ? Cause(*hung_) : Cause(Cause::Failed{*result_.failure});
        }
        if (excused_) {
            return Cause::Abandoned{spent_->node, true};
        }
        return trigger_ == nullptr ? end_.planned : cause_of_trigger();
    }
    Cause cause_of_trigger() const {
        if (const auto* broken = trigger_->as<Evidence::LinkBroken>()) {
            Cause::LinkBroke link = broken->link;
            link.mutual = broken_links(evidence_).contains({link.peer, link.rank});
            return link;
        }
        if (const auto* abandoned = trigger_->as<Evidence::RoundAbandoned>()) {
            if (const auto* link = why_abandoned(abandoned->node)) {
                return *link;
            }
            return Cause::Abandoned{abandoned->node, abandoned->store_spent};
        }
        if (const auto* superseded = trigger_->as<Evidence::Superseded>()) {
            return superseded->cause;
        }
        if (const auto* behind = trigger_->as<Evidence::BegunBehind>()) {
            return behind->cause;
        }
        return {};
    }
    // Workers suspend without an order when they cannot reach their peers. Returns the broken link
    // that this node reported, otherwise the first one reported.
    const Cause::LinkBroke* why_abandoned(const std::string& node) const {
        const Cause::LinkBroke* any = nullptr;
        for (const Evidence& entry : evidence_.first(*end_.by)) {
            if (const auto* broken = entry.as<Evidence::LinkBroken>()) {
                if (broken->link.node == node) {
                    return &broken->link;
                }
                any = any == nullptr ? &broken->link : any;
            }
        }
        return any;
    }

    std::span<const Evidence> evidence_;
    const RoundEnd& end_;
    const Evidence* trigger_;
    bool ends_by_network_;
    bool lost_any_ = false;
    bool excused_ = false;  // The failure followed from the loss of the store.
    Cause::Gone gone_;
    const Evidence::RoundAbandoned* spent_ = nullptr;
    const Cause::Hung* hung_ = nullptr;
    Judgement result_;
};

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

std::optional<std::size_t> find_mutual_break(std::span<const Evidence> evidence) {
    const Links links = broken_links(evidence);
    for (std::size_t i = 0; i < evidence.size(); ++i) {
        const auto* broken = evidence[i].as<Evidence::LinkBroken>();
        if (broken != nullptr && links.contains({broken->link.peer, broken->link.rank})) {
            return i;
        }
    }
    return std::nullopt;
}

Judgement judge(std::span<const Evidence> evidence, const RoundEnd& end) {
    return Judge(evidence, end).judge();
}

}  // namespace regroup::rendezvous
