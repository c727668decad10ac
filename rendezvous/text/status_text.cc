// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstdio>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"
#include "rendezvous/base/time_text.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

std::string ms(Duration duration) {
    char text[32];
    std::snprintf(text, sizeof text, "%.1f",
                  std::chrono::duration<double, std::milli>(duration).count());
    return text;
}

// With enough digits that a small loss does not show as 100 %.
std::string percent(double share) {
    constexpr int kDigitsMax = 4;
    int digits = 1;
    for (double half = 0.05; 100 * (1 - share) < half && digits < kDigitsMax; half /= 10) {
        ++digits;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%.*f", digits, 100 * share);
    return text;
}

std::string all_used(std::uint32_t allowed, const std::string& one, const char* flag) {
    const std::string limit = std::string(" (") + flag + " " + std::to_string(allowed) + ")";
    const std::string many = one + (one.ends_with("loss") ? "es" : "s");
    if (allowed == 0) {
        return "no " + many + " are allowed" + limit;
    }
    if (allowed == 1) {
        return "the only " + one + " is used" + limit;
    }
    return "all " + std::to_string(allowed) + " " + many + " used" + limit;
}

std::string steps_again(std::uint64_t steps, bool at_least) {
    return counted(static_cast<std::size_t>(steps), "step") + (at_least ? " or more" : "");
}

std::string lost_steps(const Incident& incident) {
    if (incident.lost_steps == 0 || incident.step == 0) {
        return incident.lost_at_least ? "; no process had kept the last state, and the last "
                                        "committed step is not known"
                                      : "";
    }
    const std::uint64_t back_to = incident.step - 1;
    return "; no process had kept the last state: back from step " +
           std::to_string(back_to + incident.lost_steps) +
           (incident.lost_at_least ? " or later" : "") + " to step " + std::to_string(back_to) +
           " (" + steps_again(incident.lost_steps, incident.lost_at_least) + " to do again)";
}

std::string all_quarantined(const Situation& situation) {
    std::string text;
    for (const QuarantinedNode& node : situation.quarantined) {
        text += "; " + describe(node);
    }
    if (situation.more_quarantined > 0) {
        text += "; and " + std::to_string(situation.more_quarantined) + " more";
    }
    return text;
}

}  // namespace

std::string describe(const Succession& succession) {
    if (!succession.told.empty()) {
        return succession.told;
    }
    std::string arrivals;
    for (const Succession::Arrival& arrival : succession.arrivals) {
        using Kind = Succession::Arrival::Kind;
        const std::string node = arrival.node;
        arrivals += (arrivals.empty() ? "" : ", ") +
                    (arrival.kind == Kind::returned  ? "node " + node + " came back to slot "
                     : arrival.kind == Kind::standby ? "standby " + node + " took slot "
                                                     : "node " + node + " took slot ") +
                    std::to_string(arrival.slot);
    }
    if (succession.arrivals_count > succession.arrivals.size()) {
        arrivals += " and " +
                    std::to_string(succession.arrivals_count - succession.arrivals.size()) +
                    " more";
    }
    std::string size;
    if (succession.nodes != succession.nodes_before) {
        size = (succession.nodes < succession.nodes_before ? "going on with " : "grown to ") +
               counted(succession.nodes, "node");
    }
    if (size.empty() && arrivals.empty()) {
        return succession.restarted_on.empty() ? "the same nodes again"
                                               : "started again on node " + succession.restarted_on;
    }
    return size + (size.empty() || arrivals.empty() ? "" : ": ") + arrivals;
}

std::string describe(const Incident& incident) {
    std::string what = incident.planned         ? "changed in "
                       : incident.until_start() ? "restarted in "
                                                : "recovered in ";
    if (incident.cut_short) {
        what = incident.planned ? "change not complete after " : "not recovered after ";
    }
    std::string text = what + ms(incident.total()) + " ms: " + describe(incident.cause);
    if (incident.decision != Succession()) {
        text += "; " + describe(incident.decision);
    }
    if (incident.cut_short) {
        text += incident.next_round == RoundId::none
                    ? "; no round took its place"
                    : "; round " + std::to_string(number(incident.next_round)) +
                          " ended before its first step";
    }
    text += lost_steps(incident) + " (detect " + ms(incident.detect) + ", decide " +
            ms(incident.decide) + ", stop " + ms(incident.stop) + ", join " + ms(incident.join);
    if (incident.until_start()) {
        return text + ", start " +
               ms(incident.communicator + incident.state + incident.first_step) + ")";
    }
    return text + ", communicator " + ms(incident.communicator) + ", state " + ms(incident.state) +
           (incident.cut_short ? ", end " : ", first step ") + ms(incident.first_step) + ")";
}

std::string describe_briefly(const Incident& incident) {
    return "round " + std::to_string(number(incident.next_round)) +
           (incident.cut_short ? ", cut short after "
            : incident.planned ? ", planned, after "
                               : " after ") +
           format_duration(incident.total()) + ": " + describe(incident.cause) +
           (incident.decision == Succession() ? "" : "; " + describe(incident.decision)) +
           (incident.lost_steps == 0
                ? ""
                : "; " + steps_again(incident.lost_steps, incident.lost_at_least) + " to do again");
}

std::string describe(const Goodput& goodput) {
    if (goodput.count == 0 || goodput.lasted <= Duration::zero()) {
        return "";
    }
    const double lost = to_seconds(goodput.lost + goodput.lost_at_end) / to_seconds(goodput.lasted);
    const std::uint32_t planned = std::min(goodput.planned, goodput.count);
    const std::uint32_t unplanned = goodput.count - planned;
    const bool until_start = goodput.until_start == goodput.count;
    std::string what = unplanned == 0   ? ""
                       : until_start    ? counted(unplanned, "restart")
                       : unplanned == 1 ? "1 recovery"
                                        : std::to_string(unplanned) + " recoveries";
    if (planned != 0) {
        what += (what.empty() ? "" : " and ") + counted(planned, "planned change");
    }
    if (goodput.cut_short != 0) {
        what +=
            (goodput.count == 1 ? ", cut short"
                                : ", " + std::to_string(goodput.cut_short) + " of them cut short") +
            std::string(until_start ? "" : ",");
    }
    std::string again;
    if (goodput.lost_steps != 0) {
        const bool one = goodput.lost_steps == 1 && !goodput.lost_at_least;
        again = "; " + steps_again(goodput.lost_steps, goodput.lost_at_least) +
                (one ? " was" : " were") + " done again";
    } else if (goodput.lost_at_least) {
        again = "; it is not known how many steps were done again";
    }
    return what + (until_start ? ", programs running again after " : " took ") +
           format_duration(goodput.lost) +
           (goodput.lost_at_end > Duration::zero()
                ? " and the end of the job " + format_duration(goodput.lost_at_end)
                : "") +
           "; " + (goodput.lost_at_least || goodput.until_start != 0 ? "up to " : "") +
           percent(1 - std::clamp(lost, 0.0, 1.0)) + " % of " +
           (goodput.lasted < std::chrono::minutes(1) ? format_duration(goodput.lasted)
                                                     : format_age(goodput.lasted)) +
           " spent training" + again;
}

std::string describe(const std::vector<JobStatus::Budget>& budgets) {
    std::string text;
    for (const JobStatus::Budget& budget : budgets) {
        text += (text.empty() ? "" : ", ") + std::string(to_string(budget.kind)) + " " +
                std::to_string(budget.used) +
                (budget.allowed ? " of " + std::to_string(*budget.allowed) : "");
    }
    return text;
}

std::string describe(const Author& author) {
    switch (author.kind) {
        case Author::Kind::told:
            return author.name;
        case Author::Kind::workers:
            return "the workers";
        case Author::Kind::rendezvous:
            return "the daemon";
        case Author::Kind::node:
            return "node " + author.name;
    }
    return "";
}

std::string describe(const Quarantine& quarantine) {
    return quarantine.asked
               ? describe(quarantine.cause) + "; it asks for another node"
               : counted(quarantine.failures, "round") + " ended because of it within " +
                     format_duration(quarantine.window) + ", the last one because " +
                     describe(quarantine.cause);
}

std::string describe(const QuarantinedNode& node) {
    return "node " + node.node + " is quarantined for " + format_duration(node.left) + ": " +
           describe(node.why);
}

std::string describe(const JobEnding& ending) {
    using Kind = JobEnding::Kind;
    std::string cause = describe(ending.cause);
    switch (ending.kind) {
        case Kind::told:
            return cause;
        case Kind::finished:
            return "all workers finished";
        case Kind::restarts_used:
            return cause + "; " + all_used(ending.allowed, "restart", "--max-restarts");
        case Kind::hangs_used:
            return cause + "; " + all_used(ending.allowed, "hang", "--max-hangs");
        case Kind::losses_used:
            return cause + "; " + all_used(ending.allowed, "node loss", "--max-node-losses");
        case Kind::worker_said_final:
            return cause + "; it says that trying again cannot help";
        case Kind::exit_code_final:
            return cause + "; trying again would not help (--on-exit " +
                   std::to_string(ending.exit_code) + "=fail)";
        case Kind::no_progress:
            return cause + "; " + counted(ending.rounds, "round") + " in a row ended" +
                   (ending.step == 0 ? " without progress"
                                     : " without one more committed step after step " +
                                           std::to_string(ending.step)) +
                   " (--no-progress " + std::to_string(ending.allowed) + ")";
        case Kind::no_other_node:
            return cause + "; it asks for another node than " +
                   (ending.names.empty() ? "" : ending.names[0]) +
                   ", and this job can have no other";
        case Kind::nobody_came: {
            std::string text = cause + "; no other node came within " +
                               format_duration(ending.waited) + " (--join-timeout)";
            for (const QuarantinedNode& node : ending.quarantined) {
                const bool same = node.why.asked && node.why.cause == ending.cause;
                text += "; node " + node.node + " is quarantined: " +
                        (same ? "it asks for another node" : describe(node.why));
            }
            return text;
        }
        case Kind::too_few_left:
            return cause + "; too few nodes remain for a restart, for " +
                   joined(ending.names, ", ") + (ending.names.size() == 1 ? " has" : " have") +
                   " finished and left";
        case Kind::unfinished:
            return describe(ending.partial_finish.finished) + " finished with exit code 0, and " +
                   describe(ending.partial_finish.awaited) + " did not within " +
                   format_duration(ending.waited) + " (--finish-timeout)";
        case Kind::drained:
            return cause + (ending.meanwhile ? "; meanwhile " + describe(*ending.meanwhile) : "");
    }
    return "";
}

std::string describe(const Situation& situation) {
    using Kind = Situation::Kind;
    const Situation& s = situation;
    const std::string left = format_duration(s.left);
    const std::string round = "round " + std::to_string(number(s.round));
    const std::string awaited = joined(s.awaited, ", ") + (s.more_awaited ? ", ..." : "");
    const std::string finish = s.partial_finish.is_known() ? "; " + describe(s.partial_finish) : "";
    switch (s.kind) {
        case Kind::told:
            return s.told;
        case Kind::gathering:
            return std::to_string(s.ready) + " of " + counted(s.nodes_min, "node") +
                   " ready, waiting for " +
                   std::to_string(s.nodes_min - std::min<std::size_t>(s.nodes_min, s.ready)) +
                   " more" + all_quarantined(s);
        case Kind::last_call:
            return counted(s.ready, "node") + " ready (minimum " + std::to_string(s.nodes_min) +
                   ", maximum " + std::to_string(s.nodes_max) + "), last call for " + left;
        case Kind::awaiting:
            return counted(s.ready, "node") + " ready, waiting for " + awaited +
                   ", which may hold a later state, for " + left;
        case Kind::backing_off:
            return counted(s.ready, "node") + " ready, the next round begins in " + left +
                   ": rounds end too soon, the last one because " + describe(s.cause);
        case Kind::training:
            return round + " is running on " + counted(s.members, "node") + finish;
        case Kind::hanging:
            return round + " hangs: " +
                   (s.culprit
                        ? describe(*s.culprit) + (s.culprit_is_ended ? "; it is being ended" : "")
                        : s.hang + "; stacks are being saved") +
                   finish;
        case Kind::changing:
            return round + " continues to a step boundary because " + describe(s.cause) +
                   "; waiting for " + awaited + " for " + left + finish;
        case Kind::ending:
            return round + " is stopping because " + describe(s.cause) + "; waiting for " +
                   awaited + " for " + left +
                   (s.in_user_code ? " (workers there are in user code)" : "");
        case Kind::closed:
            return "closed by " + describe(s.author) + ": " + describe(*s.ending);
        case Kind::quarantined:
            return s.quarantined.empty() ? "" : describe(s.quarantined[0]);
        case Kind::refused:
            return describe(*s.refusal);
    }
    return "";
}

std::string describe(const Refusal& refusal) {
    using Kind = Refusal::Kind;
    const std::string who = "node " + refusal.node;
    const std::string other = refusal.other.empty()           ? "the job"
                              : refusal.other == refusal.node ? "another node of that name"
                                                              : "node " + refusal.other;
    switch (refusal.kind) {
        case Kind::told:
            return refusal.told;
        case Kind::contradicts:
            return who + " contradicts " + other + ": " + refusal.field + " is " + refusal.here +
                   " here, " + refusal.there + " there; give all nodes the same" +
                   (refusal.may_begin_another
                        ? ", or begin another job (--rdzv-id, or another --state)"
                        : "");
        case Kind::workers:
            return who + " offers " + refusal.here +
                   (refusal.here == "1" ? " worker" : " workers") + "; it must be 1 to " +
                   refusal.there;
        case Kind::slot:
            return "--node-rank " + refusal.here + " of " + who + " is outside --nnodes " +
                   refusal.there;
        case Kind::slot_taken:
            return who + " and " + other + " both claim --node-rank " + refusal.here;
        case Kind::round:
            return who + " reports round " + refusal.here + "; no job gets beyond round " +
                   refusal.there;
        case Kind::other_job:
            return "a job of one node (--nnodes=1) has its node already, " + refusal.other +
                   (refusal.same_command ? "" : ", which runs another command") +
                   "; for another job give --standalone, another --rdzv-id or another "
                   "--rdzv-endpoint" +
                   (refusal.same_command ? ", for a standby give both launchers --standbys=1" : "");
        case Kind::other_command:
            return "node " + refusal.other +
                   " of the job of the usual name runs another command; "
                   "for another job give another --rdzv-id or another --rdzv-endpoint, and for "
                   "nodes of one job with different commands the same --rdzv-id";
    }
    return "";
}

std::string describe_detail(const JobStatus::Node& node) {
    std::string text;
    if (node.leaving) {
        text = describe(*node.leaving);
    } else if (node.quarantine) {
        text = describe(*node.quarantine);
    } else if (node.prestarted) {
        text = node.elastic ? "its workers are started" : "its workers are being started";
    } else if (node.unheard_of != RoundId::none) {
        text = "has not confirmed round " + std::to_string(number(node.unheard_of)) + " yet";
    }
    if (!node.finished.empty() && node.state != NodeState::finished) {
        text += (text.empty() ? "" : "; ") + describe(node.finished) +
                (node.finished.size() == 1 ? " has finished" : " have finished");
    }
    if (node.place != JobStatus::Membership::member && node.held_step > 0) {
        text += (text.empty() ? "" : "; ") + std::string("its workers have step ") +
                std::to_string(node.held_step);
    }
    return text;
}

}  // namespace regroup::rendezvous
