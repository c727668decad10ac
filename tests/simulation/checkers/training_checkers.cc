// SPDX-License-Identifier: Apache-2.0
//
// Invariants of elastic workers, and of the steps that they commit.
#include <algorithm>
#include <map>
#include <set>

#include "tests/simulation/checker.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

class StepsChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        answer_limit_ = 2 * policy.heartbeat_timeout + std::chrono::seconds(2);
        groups_.clear();
        behind_.clear();
        processes_.clear();
        suspended_.clear();
        decided_.clear();
        lost_.clear();
    }
    void on_process_end(Instant now, std::uint32_t host, std::uint64_t life,
                        bool /*success*/) override {
        if (const auto found = processes_.find(life); found != processes_.end()) {
            lost_.push_back({host, now, found->second.step});
            processes_.erase(found);
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& core,
                           const Effects& /*effects*/) override {
        decided_.try_emplace(core.round(), now);
    }
    void on_process_finished(Instant /*now*/, std::uint64_t life) override {
        processes_.erase(life);
    }
    void on_worker_suspended(Instant now, std::uint32_t host, RoundId /*round*/) override {
        suspended_[host] = now;
    }
    void on_trouble(Instant now, Instant until) override {
        const Duration settling = std::chrono::seconds(20);
        trouble_until_ = std::max({trouble_until_, after(now, settling), after(until, settling)});
    }
    void on_tick(Instant now, const View& view) override {
        // A lost message is repeated with the next heartbeat.
        word_limit_ = view.network_limit + kWordMargin + (view.reliable ? Duration{} : kFreeLimit);
        give_up_limit_ = view.reliable ? 2 * view.network_limit + answer_limit_ : Duration::max();
        free_.resize(view.hosts.size(), Instant::max());
        for (std::size_t i = 0; i < view.hosts.size(); ++i) {
            const HostView& host = view.hosts[i];
            // A quarantined node does not count, whatever state it has.
            const bool wanted =
                view.rendezvous != nullptr &&
                !view.rendezvous->is_quarantined(view.rendezvous->name_of(host.node));
            const bool free = wanted && host.agent != nullptr && !host.agent->leaving() &&
                              !host.agent->draining() && host.agent->report().draining.empty() &&
                              host.agent->report().state == NodeState::stopped;
            free_[i] =
                free ? std::max(std::min(free_[i], now), host.undisturbed_since) : Instant::max();
        }
    }
    void on_group_formed(Instant now, const GroupName& group, std::uint64_t step,
                         const std::vector<MemberView>& members) override {
        std::map<std::uint64_t, std::pair<std::uint64_t, std::uint64_t>> ranges;  // By last group.
        std::uint64_t highest = 0;
        for (const MemberView& member : members) {
            highest = std::max(highest, member.step);
            const auto known = processes_.find(member.life);
            if (known != processes_.end()) {
                const auto range =
                    ranges.emplace(known->second.group, std::pair(member.step, member.step)).first;
                range->second.first = std::min(range->second.first, member.step);
                range->second.second = std::max(range->second.second, member.step);
            }
        }
        if (step != highest) {
            violated("round " + text(group.round) + " began at step " + std::to_string(step) +
                     ", but a member had reached step " + std::to_string(highest));
        }
        for (const auto& [last, range] : ranges) {
            if (range.second > range.first + 1) {
                violated("survivors of round " + text(groups_[last].round) +
                         " differ by more than one step: " + std::to_string(range.first) + " and " +
                         std::to_string(range.second));
            }
        }
        check_nothing_lost(now, group, step, members);
        Group& formed = groups_[group.id];
        formed.step = step;
        formed.round = group.round;
        for (const MemberView& member : members) {
            formed.members.insert(member.life);
            processes_[member.life] = {member.host, group.id, step};
        }
    }
    void on_vote(Instant /*now*/, const GroupName& group, bool suspend) override {
        Group& voting = groups_[group.id];
        if (voting.applied != voting.members.size() && voting.votes > 0) {
            violated("round " + text(group.round) +
                     " voted again before all had applied the last step");
        }
        if (voting.suspends) {
            violated("round " + text(group.round) + " voted again after all had agreed to suspend");
        }
        ++voting.votes;
        voting.applied = 0;
        voting.suspends = suspend;
        for (auto later = groups_.upper_bound(group.id); later != groups_.end(); ++later) {
            const auto& members = later->second.members;
            if (std::any_of(voting.members.begin(), voting.members.end(),
                            [&](std::uint64_t life) { return members.contains(life); })) {
                violated("round " + text(group.round) +
                         " voted although a member of it is in round " + text(later->second.round));
            }
        }
    }
    void on_commit(Instant now, std::uint32_t /*host*/, std::uint64_t life, const GroupName& group,
                   std::uint64_t step) override {
        Group& known = groups_[group.id];
        Process& process = processes_[life];
        if (step != process.step + 1 || step != known.step + known.votes) {
            violated("in round " + text(group.round) + " step " + std::to_string(step) +
                     " was committed by a rank at step " + std::to_string(process.step) +
                     ", after " + std::to_string(known.votes) + " votes from step " +
                     std::to_string(known.step));
        }
        ++known.applied;
        process.step = step;
        check_given_up(now, group, step);
    }
    void on_saved(Instant /*now*/, std::uint32_t host, std::uint64_t /*life*/,
                  const GroupName& group, std::uint64_t step) override {
        const Group& known = groups_[group.id];
        if (step != known.step + known.votes || !known.suspends) {
            violated("host " + std::to_string(host) + " saved step " + std::to_string(step) +
                     " to leave, but round " + text(group.round) + " ended at step " +
                     std::to_string(known.step + known.votes));
        }
    }

   private:
    struct Group {
        RoundId round = RoundId::none;
        std::uint64_t step = 0;  // The step at which the group began.
        std::uint64_t votes = 0;
        std::size_t applied = 0;  // Number of ranks that have applied the last vote.
        bool suspends = false;
        std::set<std::uint64_t> members;  // Processes.
    };
    struct Process {
        std::uint32_t host = 0;
        std::uint64_t group = 0;  // The last group of the process.
        std::uint64_t step = 0;
    };
    struct Lost {
        std::uint32_t host = 0;
        Instant at{};
        std::uint64_t step = 0;
    };
    // The most advanced step of a lost process that the daemon, when it formed the round, could
    // still take for a member.
    std::uint64_t counted_on_by(const GroupName& group, const std::vector<MemberView>& members) {
        std::uint64_t step = 0;
        std::erase_if(lost_, [&](const Lost& lost) {
            const bool of_member =
                std::any_of(members.begin(), members.end(),
                            [&](const MemberView& member) { return member.host == lost.host; });
            if (of_member && lost.at >= decided_[group.round] - word_limit_) {
                step = std::max(step, lost.step);
            }
            return of_member;
        });
        return step;
    }
    // The state is lost only with the last process that has it: a round includes one of the most
    // advanced processes that were present.
    void check_nothing_lost(Instant now, const GroupName& group, std::uint64_t step,
                            const std::vector<MemberView>& members) {
        const std::uint64_t counted_on = counted_on_by(group, members);
        if (now < trouble_until_) {
            return;
        }
        for (const auto& [life, process] : processes_) {
            const bool is_member =
                std::any_of(members.begin(), members.end(),
                            [&, id = life](const MemberView& member) { return member.life == id; });
            const bool was_free =
                process.host < free_.size() && free_[process.host] < now - kFreeLimit &&
                suspended_.contains(process.host) && suspended_[process.host] < now - kFreeLimit;
            const bool is_left_out = process.step > step && !is_member && was_free;
            if (is_left_out && process.step <= counted_on) {
                behind_[group.id] = {life, {}};
            } else if (is_left_out) {
                violated("round " + text(group.round) + " began at step " + std::to_string(step) +
                         " without host " + std::to_string(process.host) +
                         ", which was present and had reached step " +
                         std::to_string(process.step));
            }
        }
    }
    // A round that formed without the most advanced state is given up once the daemon knows its
    // first step.
    void check_given_up(Instant now, const GroupName& group, std::uint64_t step) {
        const auto behind = behind_.find(group.id);
        if (behind == behind_.end()) {
            return;
        }
        auto& [life, first_commit] = behind->second;
        first_commit = first_commit == Instant{} ? now : first_commit;
        const auto left_out = processes_.find(life);
        if (left_out == processes_.end() || now < trouble_until_ ||
            free_[left_out->second.host] > first_commit) {
            behind_.erase(behind);
        } else if (step < left_out->second.step && give_up_limit_ != Duration::max() &&
                   now > after(first_commit, give_up_limit_)) {
            violated("round " + text(group.round) + " goes on with step " + std::to_string(step) +
                     " without host " + std::to_string(left_out->second.host) +
                     ", which had reached step " + std::to_string(left_out->second.step));
        }
    }
    static constexpr Duration kFreeLimit = std::chrono::seconds(5);
    static constexpr Duration kWordMargin = std::chrono::milliseconds(10);

    Instant trouble_until_{};
    Duration word_limit_{};
    Duration answer_limit_{};
    Duration give_up_limit_ = Duration::max();
    /// By group: a process that was left out, and when the group committed its first step.
    std::map<std::uint64_t, std::pair<std::uint64_t, Instant>> behind_;
    std::map<RoundId, Instant> decided_;
    std::vector<Lost> lost_;  // Lost processes that had taken part in a round.
    std::map<std::uint64_t, Group> groups_;
    std::map<std::uint64_t, Process> processes_;
    std::map<std::uint32_t, Instant> suspended_;
    std::vector<Instant> free_;  // By host: since when it has been free, at the last tick.
};

// A suspended worker keeps its process while its agent needs it.
class KeepChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override {
        suspended_[host].clear();
        asked_[host].clear();
        places_[host].clear();
        trained_[host].clear();
        departs_.erase(host);
    }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        if (const auto* word = std::get_if<agent::WorkerSuspended>(&event)) {
            // A worker that was asked to end counts as ended, whatever it reports. The message of a
            // worker that was started ahead may come after its assignment.
            const bool late = places_[host].contains(word->local_rank) &&
                              word->round < places_[host][word->local_rank];
            if (!late && !asked_[host].contains(word->local_rank)) {
                suspended_[host].insert(word->local_rank);
            }
        } else if (const auto* exited = std::get_if<agent::WorkerExited>(&event)) {
            suspended_[host].erase(exited->local_rank);
            asked_[host].erase(exited->local_rank);
            trained_[host].erase(exited->local_rank);
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        if (const auto* assign = std::get_if<agent::AssignWorkers>(&effect)) {
            for (const std::uint32_t local_rank : assign->local_ranks) {
                suspended_[host].erase(local_rank);
                places_[host][local_rank] = assign->assignment.round;
                trained_[host].insert(local_rank);
            }
        } else if (const auto* launch = std::get_if<agent::LaunchWorkers>(&effect)) {
            for (const std::uint32_t local_rank : launch->local_ranks) {
                check_free(host, local_rank);
                asked_[host].erase(local_rank);
                trained_[host].insert(local_rank);
            }
        } else if (const auto* prestart = std::get_if<agent::PrestartWorkers>(&effect)) {
            for (const std::uint32_t local_rank : prestart->local_ranks) {
                check_free(host, local_rank);
                asked_[host].erase(local_rank);
                trained_[host].erase(local_rank);
                places_[host].erase(local_rank);
            }
        } else if (const auto* pause = std::get_if<agent::PauseWorkers>(&effect)) {
            if (pause->leave) {
                departs_.insert(host);
            }
        } else if (std::holds_alternative<agent::BeginRound>(effect)) {
            departs_.erase(host);
        } else if (const auto* signal = std::get_if<agent::SignalWorkers>(&effect)) {
            for (const std::uint32_t local_rank : signal->local_ranks) {
                // On a leaving node, workers with state save it. The other workers are not needed.
                const bool useless = departs_.contains(host) &&
                                     !trained_[host].contains(local_rank) && signal->waiting;
                // A worker that was asked to end before gets SIGKILL when its time is over.
                const bool is_ending = asked_[host].contains(local_rank);
                if (suspended_[host].contains(local_rank) && !core.leaving() && !useless &&
                    !is_ending) {
                    violated("worker " + std::to_string(local_rank) + " of host " +
                             std::to_string(host) + " was ended although it was suspended");
                }
                asked_[host].insert(local_rank);
            }
        } else if (const auto* kill = std::get_if<agent::KillWorker>(&effect)) {
            asked_[host].insert(kill->local_rank);
        }
    }

   private:
    void check_free(std::uint32_t host, std::uint32_t local_rank) {
        if (suspended_[host].contains(local_rank)) {
            violated("host " + std::to_string(host) + " launched a worker in place of worker " +
                     std::to_string(local_rank) + ", which is suspended");
        }
    }
    std::map<std::uint32_t, std::set<std::uint32_t>> suspended_;  // By host: local ranks.
    // By host: workers that were asked to end.
    std::map<std::uint32_t, std::set<std::uint32_t>> asked_;
    std::map<std::uint32_t, std::map<std::uint32_t, RoundId>> places_;
    std::map<std::uint32_t, std::set<std::uint32_t>> trained_;  // Have had a place in a round.
    std::set<std::uint32_t> departs_;                           // Hosts that were told to leave.
};

}  // namespace

std::unique_ptr<Checker> make_steps_checker() {
    return std::make_unique<StepsChecker>();
}
std::unique_ptr<Checker> make_keep_checker() {
    return std::make_unique<KeepChecker>();
}

}  // namespace regroup::simulation
