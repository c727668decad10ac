// SPDX-License-Identifier: Apache-2.0
//
// Invariants of daemons that die and come back.
#include <algorithm>
#include <map>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/text/describe.h"
#include "tests/simulation/checker.h"
#include "tests/support/transcript.h"

namespace regroup::simulation {

namespace {

using namespace rendezvous;

class ReplayChecker final : public Checker {
   public:
    // Periodic Waiting messages are no decisions, and not in the records.
    void on_replayed(Instant /*now*/, const Effects& all_sent,
                     const Effects& all_replayed) override {
        const Effects sent = decided(all_sent);
        const Effects replayed = decided(all_replayed);
        bool same = sent.size() == replayed.size();
        for (std::size_t i = 0; same && i < sent.size(); ++i) {
            same =
                sent[i].node == replayed[i].node && is_same(sent[i].message, replayed[i].message);
        }
        if (!same) {
            violated("a daemon decided {" + text(sent) + "}, but its records say {" +
                     text(replayed) + "}");
        }
    }

   private:
    static Effects decided(Effects effects) {
        std::erase_if(effects, [](const Send& effect) {
            return std::holds_alternative<Waiting>(effect.message);
        });
        return effects;
    }
    static bool is_same(const FromDaemon& a, const FromDaemon& b) {
        const auto* x = std::get_if<Assign>(&a);
        const auto* y = std::get_if<Assign>(&b);
        if (x != nullptr && y != nullptr) {
            return x->assignment == y->assignment;
        }
        return a.index() == b.index() && test::to_line(a) == test::to_line(b);
    }
    static std::string text(const Effects& effects) {
        std::string result;
        for (const Send& effect : effects) {
            result +=
                (result.empty() ? "" : "; ") + effect.node + ": " + test::to_line(effect.message);
        }
        return result;
    }
};

// Rounds survive the death of a daemon.
class ReturnChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& policy) override {
        settling_ = 3 * policy.heartbeat_timeout + std::chrono::seconds(10);
        restored_at_.reset();
    }
    void on_daemon_start(Instant /*now*/) override { restored_at_.reset(); }
    void on_daemon_restored(Instant now, const RendezvousCore& core) override {
        if (trouble_until_ > away_since_) {
            return;  // The daemon learns only now of events during its absence.
        }
        restored_at_ = now;
        round_ = core.phase() == Phase::training ? core.round() : RoundId::none;
    }
    void on_trouble(Instant now, Instant until) override {
        trouble_until_ = std::max({trouble_until_, after(now, settling_), after(until, settling_)});
    }
    void on_process_end(Instant now, std::uint32_t /*host*/, std::uint64_t /*life*/,
                        bool /*success*/) override {
        on_trouble(now, now);
    }
    void on_agent_start(Instant now, std::uint32_t /*host*/) override { on_trouble(now, now); }
    void on_agent_end(Instant now, std::uint32_t /*host*/) override { on_trouble(now, now); }
    void on_daemon_gone(Instant now) override { away_since_ = std::min(away_since_, now); }
    void on_tick(Instant now, const View& view) override {
        if (view.rendezvous != nullptr && view.daemon_awake_since != Instant::max() &&
            now > after(view.daemon_awake_since, settling_)) {
            away_since_ = Instant::max();
        }
    }
    void on_daemon_effects(Instant now, const RendezvousCore& /*core*/,
                           const Effects& effects) override {
        if (!restored_at_ || now > after(*restored_at_, settling_) || now < trouble_until_) {
            return;
        }
        for (const Send& effect : effects) {
            const auto* stop = std::get_if<Stop>(&effect.message);
            // Growth and drains stop rounds of workers without the SDK. Where nodes have little
            // time to come back, reconnecting may take longer.
            const bool planned = stop != nullptr && is_planned(stop->reason);
            const bool hasty = stop != nullptr && settling_ < kReturnTime && did_not_return(*stop);
            if (stop != nullptr && stop->round == round_ && round_ != RoundId::none && !planned &&
                !hasty) {
                violated(
                    "round " + std::to_string(number(round_)) +
                    " ended although nothing but a daemon had died: " + describe(stop->reason));
            }
        }
    }

   private:
    static bool did_not_return(const Stop& stop) {
        const auto* gone = stop.reason.as<Cause::Gone>();
        return gone != nullptr &&
               std::any_of(gone->nodes.begin(), gone->nodes.end(), [](const auto& node) {
                   return node.how.kind == Departure::Kind::absent ||
                          node.how.kind == Departure::Kind::disconnected;
               });
    }
    static constexpr Duration kReturnTime = std::chrono::seconds(19);  // For heartbeats of 3 s.
    Duration settling_{};
    std::optional<Instant> restored_at_;
    RoundId round_ = RoundId::none;  // The round that ran when the daemon came back.
    Instant trouble_until_{};
    Instant away_since_ = Instant::max();
};

// Without a daemon, agents do not disturb their workers.
class HeadlessChecker final : public Checker {
   public:
    void on_agent_start(Instant /*now*/, std::uint32_t host) override { hosts_[host] = {}; }
    void on_agent_event(Instant /*now*/, std::uint32_t host,
                        const agent::AgentEvent& event) override {
        Host& known = hosts_[host];
        if (std::holds_alternative<agent::LinkUp>(event)) {
            known.linked = true;
            known.reason = known.leaves;
        } else if (std::holds_alternative<agent::LinkDown>(event)) {
            known.linked = false;
        } else if (std::holds_alternative<agent::WorkerExited>(event) ||
                   std::holds_alternative<agent::WorkerSuspended>(event) ||
                   std::holds_alternative<agent::QuitRequested>(event)) {
            known.reason = true;
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t host, const agent::AgentCore& core,
                         const agent::AgentEffect& effect) override {
        Host& known = hosts_[host];
        known.reason = known.reason || core.leaving();
        if (std::holds_alternative<agent::DropLink>(effect)) {
            known.linked = false;
        } else if (std::holds_alternative<agent::BeginRound>(effect)) {
            known.leaves = false;
        } else if (const auto* pause = std::get_if<agent::PauseWorkers>(&effect)) {
            // Its workers have a limited time to leave, with or without a daemon.
            known.leaves = known.leaves || pause->leave;
            known.reason = known.reason || known.leaves;
        }
        const auto* signal = std::get_if<agent::SignalWorkers>(&effect);
        const bool disturbs = std::holds_alternative<agent::EndRound>(effect) ||
                              std::holds_alternative<agent::PauseWorkers>(effect) ||
                              (signal != nullptr && !signal->force());
        known.reason = known.reason || (disturbs && known.linked);
        if (disturbs && !known.linked && !known.reason) {
            violated("host " + std::to_string(host) +
                     " disturbed its workers for no other reason than that the daemon was away");
        }
    }

   private:
    struct Host {
        bool linked = false;
        bool leaves = false;  // The node was told to leave at a step boundary.
        bool reason = false;  // Another event has occurred since the link was up.
    };
    std::map<std::uint32_t, Host> hosts_;
};

// The stages of each recovery.
class IncidentChecker final : public Checker {
   public:
    void on_job(Instant /*now*/, const JobPolicy& /*policy*/) override {
        rough_ = false;
        forget();
    }
    void on_trouble(Instant /*now*/, Instant until) override {
        rough_ = rough_ || until == Instant::max();  // The message, sent once, may be lost.
    }
    void on_daemon_start(Instant /*now*/) override { forget(); }
    void on_daemon_effects(Instant now, const RendezvousCore& /*core*/,
                           const Effects& effects) override {
        for (const Send& effect : effects) {
            if (const auto* assign = std::get_if<Assign>(&effect.message)) {
                assigned_.emplace(assign->assignment.round, now);
            } else if (const auto* recovered = std::get_if<Recovered>(&effect.message)) {
                check(now, recovered->incident);
            }
        }
    }
    void on_vote(Instant now, const GroupName& group, bool /*suspend*/) override {
        voted_.emplace(group.round, now);
    }
    void on_calm(Instant now, const View& view) override {
        if (view.rendezvous == nullptr || view.rendezvous->phase() != Phase::training) {
            return;
        }
        const RoundId round = view.rendezvous->round();
        const auto voted = voted_.find(round);
        if (assigned_.size() > 1 && assigned_.rbegin()->first == round && voted != voted_.end() &&
            now > after(voted->second, kTellLimit) && !rough_ && !told_.contains(round)) {
            violated("no node was told of the recovery to round " + std::to_string(number(round)) +
                     ", which has been training for " + format_duration(now - voted->second));
        }
    }

   private:
    static constexpr Duration kTellLimit = std::chrono::seconds(30);
    void forget() {
        assigned_.clear();
        voted_.clear();
        told_.clear();
    }
    void check(Instant now, const Incident& incident) {
        const std::string which = "the incident between rounds " +
                                  std::to_string(number(incident.round)) + " and " +
                                  std::to_string(number(incident.next_round));
        for (const Duration stage : {incident.detect, incident.decide, incident.stop, incident.join,
                                     incident.communicator, incident.state, incident.first_step}) {
            if (stage < Duration::zero()) {
                violated(which + " has a stage of negative length: " + describe(incident));
            }
        }
        if (incident.next_round <= incident.round || !incident.cause.is_known()) {
            violated(which + " has no cause, or the wrong order of rounds: " + describe(incident));
        }
        const auto from = assigned_.find(incident.round);
        // Clocks of daemons differ by seconds at most. A lost node may have been silent for longer
        // than the round lasted.
        if (from != assigned_.end() &&
            incident.total() - incident.detect > now - from->second + kClockLimit) {
            violated(which + " took longer than there was time since the first of them began: " +
                     describe(incident));
        }
        if (incident.cut_short && incident.step != 0) {
            violated(which + " was cut short, and has a first step: " + describe(incident));
        }
        if (!incident.cut_short) {
            told_.insert_or_assign(incident.next_round, now);
        }
    }
    static constexpr Duration kClockLimit = std::chrono::seconds(15);
    bool rough_ = false;
    std::map<RoundId, Instant> assigned_;
    std::map<RoundId, Instant> voted_;  // Time of the round's first vote.
    std::map<RoundId, Instant> told_;
};

class WireChecker final : public Checker {
   public:
    void on_daemon_effects(Instant /*now*/, const RendezvousCore& /*core*/,
                           const Effects& effects) override {
        for (const Send& send : effects) {
            if (std::holds_alternative<Alive>(send.message)) {
                continue;
            }
            if (!std::holds_alternative<Waiting>(send.message) || is_sample()) {
                check(protocol::decode_from_daemon(protocol::encode(send.message)));
            }
        }
    }
    void on_agent_effect(Instant /*now*/, std::uint32_t /*host*/, const agent::AgentCore& /*core*/,
                         const agent::AgentEffect& effect) override {
        const auto* send = std::get_if<agent::SendToDaemon>(&effect);
        const auto* report = send != nullptr ? std::get_if<Report>(&send->message) : nullptr;
        if (send != nullptr && (report == nullptr || report->report.failure || is_sample())) {
            check(protocol::decode_from_agent(protocol::encode(send->message)));
        }
    }

   private:
    /// True for one in sixteen of the messages that are sent all the time.
    bool is_sample() { return ++frequent_ % 16 == 0; }
    template <class Message>
    void check(const Result<Message>& decoded) {
        if (!decoded) {
            violated("a message cannot be decoded: " + decoded.error().detail);
        }
    }
    std::uint64_t frequent_ = 0;
};

}  // namespace

std::unique_ptr<Checker> make_wire_checker() {
    return std::make_unique<WireChecker>();
}
std::unique_ptr<Checker> make_replay_checker() {
    return std::make_unique<ReplayChecker>();
}
std::unique_ptr<Checker> make_return_checker() {
    return std::make_unique<ReturnChecker>();
}
std::unique_ptr<Checker> make_headless_checker() {
    return std::make_unique<HeadlessChecker>();
}
std::unique_ptr<Checker> make_incident_checker() {
    return std::make_unique<IncidentChecker>();
}

}  // namespace regroup::simulation
