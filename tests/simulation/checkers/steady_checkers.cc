// SPDX-License-Identifier: Apache-2.0
//
// Invariants of healthy rounds, and of rounds that hang.
#include <algorithm>
#include <map>
#include <set>

#include "rendezvous/text/describe.h"
#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

// A healthy elastic round commits steps, with or without a daemon.
class SteadyChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        settling_ = 3 * policy.heartbeat_timeout + std::chrono::seconds(10);
        change_limit_ = policy.prepare_timeout + settling_;
        groups_.clear();
        hung_.clear();
        away_since_.reset();
    }
    void on_trouble(Instant now, Instant until) override {
        trouble_until_ = std::max({trouble_until_, after(now, settling_), after(until, settling_)});
    }
    void on_agent_start(Instant now, std::uint32_t /*host*/) override { on_trouble(now, now); }
    void on_agent_end(Instant now, std::uint32_t host) override {
        leaving_.erase(host);
        on_trouble(now, now);
    }
    void on_worker_end(Instant now, std::uint32_t /*host*/, RoundId /*round*/,
                       bool own_fault) override {
        if (own_fault) {
            on_trouble(now, now);
        }
    }
    void on_daemon_start(Instant now) override { on_trouble(now, now); }
    void on_daemon_gone(Instant now) override { away_since_ = away_since_.value_or(now); }
    void on_daemon_restored(Instant now, const RendezvousCore& /*core*/) override {
        if (away_since_ && trouble_until_ > *away_since_) {
            on_trouble(now, now);  // The daemon learns only now of events during its absence.
        }
        away_since_.reset();
    }
    void on_daemon_event(Instant now, const Event& event) override {
        if (std::holds_alternative<StopRequested>(event)) {
            on_trouble(now, now);
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& /*core*/,
                           const Effects& effects) override {
        for (const Send& effect : effects) {
            const auto* stop = std::get_if<Stop>(&effect.message);
            const bool planned = stop != nullptr && is_planned(stop->reason);
            if (planned || std::holds_alternative<Prepare>(effect.message)) {
                on_trouble(now, after(now, change_limit_));
            }
        }
    }
    void on_group_formed(Instant now, const GroupName& group, std::uint64_t /*step*/,
                         const std::vector<MemberView>& members) override {
        Group formed{group.round, now, {}, {}};
        for (const MemberView& member : members) {
            formed.members.insert(member.life);
            formed.hosts.insert(member.host);
            leave_group(member.life);
        }
        const bool ends = std::any_of(leaving_.begin(), leaving_.end(), [&](std::uint32_t host) {
            return formed.hosts.contains(host);
        });
        if (ends) {
            return;  // They were asked to end earlier, and may take their time.
        }
        groups_[group.id] = std::move(formed);
    }
    void on_vote(Instant /*now*/, const GroupName& group, bool suspend) override {
        if (suspend) {
            groups_.erase(group.id);
        }
    }
    void on_finished(Instant /*now*/, const GroupName& group) override { groups_.erase(group.id); }
    void on_commit(Instant now, std::uint32_t /*host*/, std::uint64_t /*life*/,
                   const GroupName& group, std::uint64_t /*step*/) override {
        if (const auto known = groups_.find(group.id); known != groups_.end()) {
            known->second.since = now;
        }
    }
    void on_hung(Instant /*now*/, const HungView& hung) override { hung_.insert(hung.life); }
    // The group commits no more steps, and without a daemon the next round may be late.
    void on_severed(Instant now, const SeveredView& severed) override {
        on_trouble(now, severed.noticed);
        groups_.erase(severed.group.id);
    }
    void on_agent_effect(Instant now, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        if (const auto* pause = std::get_if<agent::PauseWorkers>(&effect); pause && pause->leave) {
            // A departure has a deadline. Close to it the node leaves without the daemon's answer.
            on_trouble(now, after(now, pause->limit));
        }
        if (!std::holds_alternative<agent::SignalWorkers>(effect) || !core.leaving()) {
            return;
        }
        // The workers end then or much later.
        leaving_.insert(host);
        for (auto it = groups_.begin(); it != groups_.end();) {
            const auto group = it++;
            if (group->second.hosts.contains(host)) {
                const std::set<std::uint64_t>& members = group->second.members;
                const auto hung =
                    std::find_if(members.begin(), members.end(),
                                 [&](std::uint64_t life) { return hung_.contains(life); });
                interrupt(now, hung == members.end() ? *members.begin() : *hung,
                          "was asked to end");
            }
        }
    }
    void on_aborted(Instant now, std::uint32_t /*host*/, std::uint64_t life, RoundId /*round*/,
                    bool /*trained*/) override {
        interrupt(now, life, "was told to abandon it");
    }
    void on_process_end(Instant now, std::uint32_t /*host*/, std::uint64_t life,
                        bool success) override {
        if (!success) {
            interrupt(now, life, "was ended");
        }
        hung_.erase(life);
    }
    void on_tick(Instant now, const View& view) override {
        for (const auto& [id, group] : groups_) {
            const bool hangs =
                std::any_of(group.members.begin(), group.members.end(),
                            [&](std::uint64_t life) { return hung_.contains(life); });
            const Instant since = std::max(group.since, trouble_until_);
            if (!hangs && now > after(since, 3 * view.step_limit)) {
                violated("round " + std::to_string(number(group.round)) +
                         " has committed no step for " + format_duration(now - group.since) +
                         daemon_text() + ", and nothing was wrong with it");
            }
        }
    }

   private:
    struct Group {
        RoundId round = RoundId::none;
        Instant since{};                  // Since the last commit, or since it formed.
        std::set<std::uint64_t> members;  // Processes.
        std::set<std::uint32_t> hosts;
    };
    [[nodiscard]] std::string daemon_text() const {
        return away_since_ ? ", the daemon being away" : "";
    }
    std::optional<RoundId> leave_group(std::uint64_t life) {
        for (auto it = groups_.begin(); it != groups_.end(); ++it) {
            if (it->second.members.contains(life)) {
                const RoundId round = it->second.round;
                groups_.erase(it);
                return round;
            }
        }
        return std::nullopt;
    }
    void interrupt(Instant now, std::uint64_t life, const std::string& how) {
        const bool hung = hung_.contains(life);
        const std::optional<RoundId> round = leave_group(life);
        if (round && now >= trouble_until_ && !hung) {
            violated("a worker of round " + std::to_string(number(*round)) + " " + how +
                     daemon_text() + ", and nothing was wrong with the round");
        }
    }

    Duration settling_{};
    Duration change_limit_{};
    Instant trouble_until_{};
    std::optional<Instant> away_since_;      // The daemon.
    std::map<std::uint64_t, Group> groups_;  // Groups that train.
    std::set<std::uint32_t> leaving_;        // Hosts whose agents have asked their workers to end.
    std::set<std::uint64_t> hung_;
};

// Only the hanging worker is ended for a hang, and in time.
class HangChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        limit_ = policy.prepare_timeout + policy.shutdown_timeout + 2 * policy.heartbeat_timeout +
                 std::chrono::seconds(60);
        hung_.clear();
        gone_.clear();
        stuck_.reset();
        moved_ = {};
        rough_ = false;
    }
    void on_trouble(Instant now, Instant until) override {
        rough_ = rough_ || until == Instant::max();
        trouble_until_ = std::max({trouble_until_, now, until});
    }
    void on_hung(Instant now, const HungView& hung) override { hung_[hung.life] = {hung, now}; }
    void on_stuck(Instant now, const GroupName& group) override {
        on_trouble(now, now);
        stuck_ = group.id;
    }
    // A question from the time when no group could form may be answered after one has formed.
    void on_group_formed(Instant now, const GroupName& group, std::uint64_t /*step*/,
                         const std::vector<MemberView>& /*members*/) override {
        if (stuck_ == group.id) {
            moved_ = {group.round, now};
        }
    }
    void on_process_end(Instant /*now*/, std::uint32_t /*host*/, std::uint64_t life,
                        bool /*success*/) override {
        if (const auto hung = hung_.find(life); hung != hung_.end()) {
            gone_.push_back(hung->second.who);
            hung_.erase(hung);
        }
    }
    void on_agent_start(Instant /*now*/, std::uint32_t host) override {
        std::erase_if(gone_, [&](const HungView& who) { return who.host == host; });
    }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        if (const auto* exited = std::get_if<agent::WorkerExited>(&event)) {
            std::erase_if(gone_, [&](const HungView& who) {
                return who.host == host && who.local_rank == exited->local_rank;
            });
        }
    }
    void on_agent_effect(Instant now, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        const auto* kill = std::get_if<agent::KillWorker>(&effect);
        const bool overtaken =
            core.report().round == moved_.first && now < after(moved_.second, kInquiryLimit);
        if (kill == nullptr || overtaken) {
            return;
        }
        const auto is_it = [&](const HungView& who) {
            return who.host == host && who.local_rank == kill->local_rank;
        };
        const bool right =
            std::any_of(hung_.begin(), hung_.end(),
                        [&](const auto& entry) { return is_it(entry.second.who); }) ||
            std::any_of(gone_.begin(), gone_.end(), is_it);
        if (!right) {
            violated("worker " + std::to_string(kill->local_rank) + " of host " +
                     std::to_string(host) +
                     " was ended for a hang that was not its own: " + describe(kill->reason));
        }
    }
    void on_tick(Instant now, const View& view) override {
        if (rough_ || view.rendezvous == nullptr || view.daemon_awake_since == Instant::max()) {
            last_disturbed_ = now;
        }
        for (const HostView& host : view.hosts) {
            if (host.agent != nullptr) {
                last_disturbed_ = std::max(last_disturbed_, host.undisturbed_since == Instant::max()
                                                                ? now
                                                                : host.undisturbed_since);
            }
        }
        for (const auto& [life, hang] : hung_) {
            const Instant since = std::max({hang.at, last_disturbed_, trouble_until_});
            // The agent waits for its peers on the node, which may be in user code.
            const Duration limit = limit_ + 2 * view.step_limit + 3 * view.hang_limit +
                                   view.work_limit + view.work_limit / 10;
            if (now > after(since, limit)) {
                violated("rank " + std::to_string(hang.who.rank) + " of round " +
                         std::to_string(number(hang.who.round)) + " has been hanging for " +
                         format_duration(now - hang.at));
            }
        }
    }

   private:
    struct Hang {
        HungView who;
        Instant at{};
    };
    static constexpr Duration kInquiryLimit = std::chrono::seconds(30);
    Duration limit_{};
    bool rough_ = false;
    Instant trouble_until_{};
    Instant last_disturbed_{};
    std::optional<std::uint64_t> stuck_;   // The last group that could not form.
    std::pair<RoundId, Instant> moved_{};  // The last stuck round that formed in the end.
    std::map<std::uint64_t, Hang> hung_;   // By process.
    std::vector<HungView> gone_;  // Ended workers whose agents have not heard of their end yet.
};

}  // namespace

std::unique_ptr<Checker> make_steady_checker() {
    return std::make_unique<SteadyChecker>();
}
std::unique_ptr<Checker> make_hang_checker() {
    return std::make_unique<HangChecker>();
}

}  // namespace regroup::simulation
