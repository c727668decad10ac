// SPDX-License-Identifier: Apache-2.0
//
// Invariants of a broken connection between two live workers.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/core/restart_budget.h"
#include "rendezvous/text/describe.h"
#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

// It ends its round in time and has no other effect. No restart is charged, all workers keep their
// processes, and the job goes on. If it stays broken, the back-off grows.
class LinkChecker final : public Checker {
   public:
    void on_job(Instant now, const JobPolicy& policy) override {
        policy_ = policy;
        rough_ = false;
        hung_.clear();
        forced_.clear();
        round_ = RoundId::none;
        on_trouble(now, now);
    }
    void on_trouble(Instant now, Instant until) override {
        rough_ = rough_ || until == Instant::max();
        const Duration settling = 3 * policy_.heartbeat_timeout + std::chrono::seconds(10);
        trouble_until_ = std::max({trouble_until_, after(now, settling), after(until, settling)});
        severed_.reset();
        barren_ = 0;
    }
    void on_agent_start(Instant now, std::uint32_t host) override {
        forced_.erase(host);
        on_trouble(now, now);
    }
    void on_agent_end(Instant now, std::uint32_t /*host*/) override { on_trouble(now, now); }
    void on_daemon_start(Instant now) override {
        round_ = RoundId::none;  // The new daemon may reuse a round number.
        on_trouble(now, now);
    }
    void on_daemon_gone(Instant now) override { on_trouble(now, now); }
    void on_daemon_restored(Instant now, const RendezvousCore& /*core*/) override {
        on_trouble(now, now);
    }
    void on_worker_end(Instant now, std::uint32_t /*host*/, RoundId /*round*/,
                       bool own_fault) override {
        if (own_fault) {
            on_trouble(now, now);
        }
    }
    void on_hung(Instant now, const HungView& hung) override {
        hung_.insert(hung.life);
        on_trouble(now, now);
    }
    void on_daemon_event(Instant now, const Event& event) override {
        if (std::holds_alternative<StopRequested>(event) ||
            std::holds_alternative<DrainRequested>(event)) {
            on_trouble(now, now);
        }
    }
    void on_finished(Instant now, const GroupName& /*group*/) override { on_trouble(now, now); }
    void on_commit(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t /*life*/,
                   const GroupName& /*group*/, std::uint64_t /*step*/) override {
        committed_ = true;
    }
    void on_severed(Instant now, const SeveredView& severed) override {
        const bool hangs = std::any_of(severed.members.begin(), severed.members.end(),
                                       [&](std::uint64_t life) { return hung_.contains(life); });
        if (!rough_ && now > trouble_until_ && !hangs && severed.group.round == round_) {
            severed_ = Severed{severed, now, restarts_};
            barren_ = std::exchange(committed_, false) ? 0 : barren_ + 1;
        } else {
            severed_.reset();
            barren_ = 0;
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& core,
                           const Effects& effects) override {
        // All nodes may have been about to leave before.
        if (core.verdict() && core.verdict()->exit_code != kExitRequeue && severed_) {
            violated(name_of(*severed_) +
                     " broke, and the job was closed: " + describe(core.verdict()->reason));
        }
        for (const Send& effect : effects) {
            const auto* stop = std::get_if<Stop>(&effect.message);
            if (stop != nullptr && severed_ && stop->round == severed_->how.group.round &&
                stop->reason.as<Cause::LinkBroke>() == nullptr) {
                violated(name_of(*severed_) + " broke, and node " + effect.node +
                         " was told that it ends because " + describe(stop->reason));
            }
        }
        if (core.phase() == Phase::forming) {
            over_at_ = over_at_.value_or(now);
        }
        if (core.round() == round_) {
            return;
        }
        round_ = core.round();
        for (const Send& effect : effects) {
            if (const auto* assign = std::get_if<Assign>(&effect.message)) {
                restarts_ = assign->assignment.restart_count;
            }
        }
        if (severed_) {
            check_next(now);
        }
        began_ = now;
        over_at_.reset();
        severed_.reset();
    }
    void on_agent_effect(Instant now, std::uint32_t host, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        const auto* signal = std::get_if<agent::SignalWorkers>(&effect);
        if (signal != nullptr && signal->force() && severed_ &&
            now > severed_->at + policy_.shutdown_timeout * 9 / 10) {
            forced_.insert(host);
        } else if (std::holds_alternative<agent::BeginRound>(effect)) {
            forced_.erase(host);
        }
    }
    void on_process_end(Instant /*now*/, std::uint32_t host, std::uint64_t life,
                        bool success) override {
        hung_.erase(life);
        const bool is_member =
            severed_ && std::find(severed_->how.members.begin(), severed_->how.members.end(),
                                  life) != severed_->how.members.end();
        if (is_member && !success && !forced_.contains(host)) {
            violated(name_of(*severed_) + " broke, and a worker of host " + std::to_string(host) +
                     " lost its process for it");
        }
    }
    void on_tick(Instant now, const View& view) override {
        const bool disturbed =
            view.rendezvous == nullptr || view.daemon_awake_since == Instant::max() ||
            std::any_of(view.hosts.begin(), view.hosts.end(), [](const HostView& host) {
                return host.agent != nullptr && host.undisturbed_since == Instant::max();
            });
        if (disturbed) {
            on_trouble(now, now);
        }
        if (!severed_ || view.rendezvous->round() != severed_->how.group.round) {
            return;
        }
        const RendezvousCore& core = *view.rendezvous;
        const Duration heard = 4 * view.network_limit + std::chrono::seconds(1);
        const Instant ends = after(severed_->how.noticed, policy_.regroup_window + heard);
        const Instant goes_on =
            after(ends, policy_.shutdown_timeout + view.work_limit + view.work_limit / 10 +
                            RestartBudget::kDelayLimit + heard + std::chrono::seconds(5));
        const bool goes = core.phase() == Phase::training || core.phase() == Phase::changing;
        if (goes && now > ends) {
            violated(name_of(*severed_) + " broke " + format_duration(now - severed_->at) +
                     " ago, and the round goes on");
        } else if (now > goes_on) {
            violated(name_of(*severed_) + " broke " + format_duration(now - severed_->at) +
                     " ago, and there is no other round: " + describe(core.situation(now)));
        }
    }

   private:
    struct Severed {
        SeveredView how;
        Instant at{};
        std::uint32_t restarts = 0;
    };
    [[nodiscard]] static std::string name_of(const Severed& severed) {
        return "the connection between ranks " + std::to_string(severed.how.rank) + " and " +
               std::to_string(severed.how.peer) + " of round " +
               std::to_string(number(severed.how.group.round));
    }
    void check_next(Instant now) {
        if (restarts_ != severed_->restarts) {
            violated(name_of(*severed_) + " broke, and that was charged as a restart");
        }
        // A late notice lets the round last longer. A round in the recent past may count for more
        // than one. A step that was voted on before the break may be committed after it.
        const Instant over_at = over_at_.value_or(now);
        if (std::exchange(committed_, false) ||
            over_at >= after(began_, RestartBudget::kLongRound * 9 / 10)) {
            barren_ = 0;
        }
        // At least three quarters of the expected back-off: the longest one divided by 2, 4, ...
        Duration wait{};
        if (barren_ >= 2) {
            wait = policy_.budgets.delay;
            for (std::uint32_t i = 2; i < barren_ && wait < RestartBudget::kDelayLimit; ++i) {
                wait *= 2;
            }
            wait = std::min(wait, RestartBudget::kDelayLimit) * 7 / 10;
        }
        const Duration waited = now - over_at;
        if (waited + std::chrono::milliseconds(500) < wait) {
            violated("connections have broken in " + std::to_string(barren_) +
                     " rounds in a row without progress, and the next one began after " +
                     format_duration(waited));
        }
    }

    JobPolicy policy_;
    bool rough_ = false;
    Instant trouble_until_{};
    RoundId round_ = RoundId::none;
    Instant began_{};                 // `round_`.
    std::optional<Instant> over_at_;  // When its last worker had ended or suspended.
    std::uint32_t restarts_ = 0;      // Restart count that its members were told.
    std::optional<Severed> severed_;  // The break in `round_`, while there is no other fault.
    bool committed_ = false;          // A step was committed since the last break.
    std::uint32_t barren_ = 0;        // Rounds in a row that ended by a break, without a step.
    std::set<std::uint64_t> hung_;    // Processes.
    std::set<std::uint32_t> forced_;  // Hosts whose workers did not suspend in time.
};

}  // namespace

std::unique_ptr<Checker> make_link_checker() {
    return std::make_unique<LinkChecker>();
}

}  // namespace regroup::simulation
