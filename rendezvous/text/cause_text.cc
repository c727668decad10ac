// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cstddef>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/signal_name.h"
#include "rendezvous/base/utf8.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {

namespace {

// The most nodes that a cause names.
constexpr std::size_t kGoneNamed = 3;

std::string of_rank(std::uint32_t rank) {
    return "rank " + std::to_string(rank);
}

std::string at_step(std::uint64_t step) {
    return step == 0 ? "" : " at step " + std::to_string(step);
}

// The worker's own message about its failure, as part of a sentence.
std::string own_words(const WorkerFailure& failure) {
    constexpr std::size_t kBytesMax = 300;
    if (!failure.announced) {
        return "";
    }
    std::string words = failure.error_message.substr(0, failure.error_message.find('\n'));
    if (words.size() > kBytesMax) {
        words = std::string(beginning_of(words, kBytesMax)) + "...";
    }
    const std::size_t last = words.find_last_not_of(words.ends_with("...") ? " " : ". ");
    return last == std::string::npos ? "" : ": " + words.substr(0, last + 1);
}

std::string end_of_node(const Departure& how, bool several) {
    const std::string its = several ? "their" : "its";
    const std::string it = several ? "they" : "it";
    const std::string lost = several ? "are lost: " : "is lost: ";
    switch (how.kind) {
        case Departure::Kind::left:
            return "left: " + how.reason;
        case Departure::Kind::killed:
            return "left: " + its + " agent was killed";
        case Departure::Kind::silent:
            return lost + "silent for " + format_duration(how.limit);
        case Departure::Kind::disconnected:
            return lost + its + " connection broke and did not come back within " +
                   format_duration(how.limit);
        case Departure::Kind::absent:
            return lost + it + " did not come back " +
                   (how.restarts > 1
                        ? "after " + std::to_string(how.restarts) + " restarts of the daemon"
                        : "within " + format_duration(how.limit) +
                              " after a restart of the daemon");
        case Departure::Kind::launcher_ended:
            return lost + its + " launcher, which ran the daemon, was ended";
        case Departure::Kind::stuck:
            return lost + it + " did not confirm that " + its + " workers are gone";
    }
    return "";
}

// Ranks that have finished, besides the one that the hang is about.
std::string also_finished(const Cause::Hung& hung) {
    const bool is_told = hung.culprit && hung.culprit->kind == HangCulprit::Kind::finished;
    return hung.finished.empty() || (is_told && hung.finished.size() == 1)
               ? ""
               : "; " + describe(hung.finished) + " finished with exit code 0";
}

struct Teller {
    std::string operator()(const Cause::Told& told) const { return told.text; }
    std::string operator()(const Cause::Joined& joined) const {
        if (joined.names.empty()) {
            return counted(joined.count, "node") + " joined";
        }
        std::string names;
        for (const std::string& name : joined.names) {
            names += (names.empty() ? "" : ", ") + name;
        }
        return (joined.count == 1 ? "node " : "nodes ") + names +
               (joined.count > joined.names.size() ? ", ..." : "") + " joined";
    }
    std::string operator()(const Cause::Failed& failed) const { return describe(*failed.failure); }
    // Nodes that went away in the same way share one predicate.
    std::string operator()(const Cause::Gone& gone) const {
        const std::vector<Cause::NodeGone>& nodes = gone.nodes;
        const std::size_t shown = std::min(nodes.size(), kGoneNamed);
        const std::size_t more = gone.count - shown;
        const bool alike = std::all_of(nodes.begin(), nodes.end(),
                                       [&](const auto& node) { return node.how == nodes[0].how; });
        std::string text;
        for (std::size_t i = 0; i < shown; ++i) {
            const bool last = i + 1 == gone.count;
            text += (i == 0 ? "" : (!alike ? "; " : (last ? " and " : ", "))) +
                    ("node " + nodes[i].node);
            text += alike ? "" : " " + end_of_node(nodes[i].how, false);
        }
        if (more > 0) {
            text += (alike ? " and " : "; and ") + std::to_string(more) + " more";
        }
        return alike && !nodes.empty() ? text + " " + end_of_node(nodes[0].how, gone.count > 1)
                                       : text;
    }
    std::string operator()(const Cause::LinkBroke& link) const {
        const auto named = [](std::uint32_t rank, const std::string& node) {
            return of_rank(rank) + (node.empty() ? "" : " on " + node);
        };
        std::string first = named(link.rank, link.node);
        std::string second = named(link.peer, link.peer_node);
        if (link.mutual && link.peer < link.rank) {
            std::swap(first, second);
        }
        return "the connection between " + first + " and " + second + " broke" +
               (link.mutual || link.text.empty() ? ""
                                                 : ": " + of_rank(link.peer) + " " + link.text);
    }
    std::string operator()(const Cause::Abandoned& abandoned) const {
        return "node " + abandoned.node + " gave the round up" +
               (abandoned.store_spent ? ": it could no longer serve the store of the round" : "");
    }
    std::string operator()(const Cause::Hung& hung) const {
        return "round " + std::to_string(number(hung.round)) +
               " hangs: " + (hung.culprit ? describe(*hung.culprit) : hung.text) +
               (hung.all_wait ? "; all ranks wait for each other" : "") + also_finished(hung);
    }
    std::string operator()(const Cause::Leaving& leaving) const { return describe(leaving); }
    std::string operator()(const Cause::JobDrain& drain) const {
        std::string why = "the daemon goes with it";
        if (drain.why == Cause::JobDrain::Why::nobody_stays) {
            why = "no other node stays";
        } else if (drain.why == Cause::JobDrain::Why::too_few_stay) {
            why = counted(drain.stay, "node") + " would be left of at least " +
                  std::to_string(drain.needed);
        }
        return describe(drain.leaving) + "; " + why + ", so all save their state and leave";
    }
    std::string operator()(const Cause::Superseded& superseded) const {
        return "node " + superseded.node + " has taken part in round " +
               std::to_string(number(superseded.round)) + " already";
    }
    std::string operator()(const Cause::BegunBehind& behind) const {
        return "node " + behind.node + " holds step " + std::to_string(behind.step) +
               ", but the round began at step " + std::to_string(behind.began_at) + " without it";
    }
    std::string operator()(const Cause::Over& over) const {
        return "round " + std::to_string(number(over.round)) + " is over";
    }
    std::string operator()(const Cause::GivenUp& /*given_up*/) const {
        return "this node was given up as lost";
    }
};

}  // namespace

std::string describe(const RankSummary& ranks) {
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    std::uint64_t named = 0;
    for (const auto& [first, count] : ranks.ranges()) {
        text += (named == 0 ? "" : ", ") + std::to_string(first);
        text += count == 1 ? "" : "-" + std::to_string(std::uint64_t{first} + count - 1);
        named += count;
    }
    const std::uint64_t more = ranks.size() - named;
    return text + (more > 0 ? " and " + std::to_string(more) + " more" : "");
}

std::string describe(const PartialFinish& finish) {
    if (finish.finished.empty()) {
        return finish.told;
    }
    return describe(finish.finished) + " finished with exit code 0, and " +
           describe(finish.awaited) + (finish.awaited.size() == 1 ? " has" : " have") +
           " gone on for " + format_duration(finish.since) + " since" +
           (finish.left > Duration::zero()
                ? "; the job ends in " + format_duration(finish.left) + " (--finish-timeout)"
                : "");
}

std::string describe(const WorkerFailure& failure) {
    const std::string who = of_rank(failure.rank) + " on " + failure.node;
    if (!failure.start_error.empty()) {
        return who + " could not start: " + failure.start_error;
    }
    if (failure.kind == FailureKind::hang && failure.unfinished) {
        return who + " finished with exit code 0, and the others did not go on without it";
    }
    if (failure.kind == FailureKind::hang) {
        return who + (failure.by_silence ? " was silent longest as its round hung, and was ended"
                                         : " hung and was ended");
    }
    if (failure.signal != 0) {
        return who + " was ended by " + signal_name(failure.signal) + own_words(failure);
    }
    if (failure.has_stopped()) {
        return who + " stopped with the other ranks, because one of them was asked to stop";
    }
    if (failure.unfinished) {
        return who + " exited with code 0 before its training was finished" + own_words(failure);
    }
    return who + " exited with code " + std::to_string(failure.exit_code) + own_words(failure);
}

namespace {

std::string waits(const RankSummary& ranks) {
    return ranks.size() == 1 ? "waits" : "wait";
}

std::string words_for_awaited(const HangCulprit& culprit, const std::string& who) {
    const std::string activity = culprit.activity.empty() ? "" : "; it is " + culprit.activity;
    const std::string place =
        (culprit.doing.empty() ? "" : "; it is in " + culprit.doing) + at_step(culprit.step);
    if (!culprit.wait) {
        return who + " does not answer a message that another rank waits for" + place + activity;
    }
    const CollectiveWait& wait = *culprit.wait;
    if (!wait.called.empty()) {
        return who + " called " + wait.called + ", and the others called " + wait.collective +
               place;
    }
    const std::string others =
        wait.missing.size() > 1 ? "; missing are " + describe(wait.missing) : "";
    return who + " has not entered " + wait.collective + ", in which " + describe(wait.waiting) +
           " " + waits(wait.waiting) + others + place + activity;
}

}  // namespace

std::string describe(const SlowRank& slow, const std::string& node) {
    const auto percent = static_cast<long>(std::min(slow.excess, 1e6) * 100);
    return of_rank(slow.rank) + (node.empty() ? "" : " on " + node) +
           " is slow: outside of collectives it spends " + std::to_string(percent) +
           " % more time than the median of the others, which wait for it";
}

std::string describe(const HangCulprit& culprit) {
    using Kind = HangCulprit::Kind;
    const std::string who =
        of_rank(culprit.rank) + (culprit.node.empty() ? "" : " on " + culprit.node);
    const std::string others = culprit.others_wait ? "; the others wait for it" : "";
    switch (culprit.kind) {
        case Kind::behind:
            return who + " is " +
                   (culprit.doing.empty() ? "not in a collective" : "in " + culprit.doing) +
                   at_step(culprit.step) + others;
        case Kind::mismatch:
            return who + " is " +
                   (culprit.doing.empty() ? "not in a collective" : "in " + culprit.doing) +
                   at_step(culprit.step) + ", " + std::to_string(culprit.operations) +
                   " collectives into its round; others are further ahead";
        case Kind::stopped:
            return who + " is stopped" + at_step(culprit.step) + ", by a signal or by a debugger" +
                   (culprit.wait ? "; " + describe(culprit.wait->waiting) + " " +
                                       waits(culprit.wait->waiting) + " for it in " +
                                       culprit.wait->collective
                                 : others);
        case Kind::silent:
            return "no worker writes anything any more; " + who +
                   (culprit.silent > Duration::zero()
                        ? " has been silent longest, for " + format_duration(culprit.silent)
                        : " is silent");
        case Kind::finished:
            return who + " finished with exit code 0, and the others do not go on without it" +
                   (culprit.wait
                        ? ": " + describe(culprit.wait->waiting) + " " +
                              waits(culprit.wait->waiting) + " in " + culprit.wait->collective
                        : "");
        case Kind::reported:
            return culprit.text;
        case Kind::awaited:
            return words_for_awaited(culprit, who);
    }
    return "";
}

std::string describe(const Cause::Leaving& leaving) {
    const LeaveWish& wish = leaving.wish;
    return "node " + leaving.node +
           (wish.said.empty()
                ? " is drained by " + wish.author + (wish.reason.empty() ? "" : ": " + wish.reason)
                : " leaves: " + wish.said) +
           (leaving.hands_over ? ", once a waiting node has its state" : "");
}

std::string describe(const Cause& cause) {
    return std::visit(Teller(), cause.what) +
           (cause.boundary_missed ? ", and not all workers reached a step boundary in time" : "");
}

}  // namespace regroup::rendezvous
