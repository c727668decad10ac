// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/server/drain_waits.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "rendezvous/base/exit_code.h"
#include "rendezvous/text/describe.h"

namespace regroup::rendezvous {
namespace {

constexpr std::size_t kNodesShownMax = 64;

std::string title_of(const JobStatus::Node& node) {
    std::string title = "node " + node.name;
    if (node.place != JobStatus::Membership::member) {
        return title;
    }
    const std::string first = std::to_string(node.first_rank);
    return title + (node.workers == 1
                        ? " (rank " + first + ")"
                        : " (ranks " + first + "-" +
                              std::to_string(node.first_rank + node.workers - 1) + ")");
}

}  // namespace

void DrainWaits::add(const std::shared_ptr<Session>& session, const std::string& name,
                     const std::vector<JobStatus::Node>& nodes) {
    Wait wait{session, false, {}};
    for (const JobStatus::Node& node : nodes) {
        if (node.name == name || node.id == name) {
            Leaver leaver;
            leaver.title = title_of(node);
            leaver.step = node.held_step;
            wait.leavers.emplace(node.id, std::move(leaver));
        }
    }
    waits_.push_back(std::move(wait));
}

void DrainWaits::accept(const std::shared_ptr<Session>& session) {
    for (Wait& wait : waits_) {
        wait.accepted = wait.accepted || wait.session == session;
    }
    look_again_ = true;
}

void DrainWaits::ended(const std::shared_ptr<Session>& session) {
    std::erase_if(waits_, [&](const Wait& wait) { return wait.session == session; });
    if (!session->membership) {
        return;
    }
    for (Wait& wait : waits_) {
        const auto found = wait.leavers.find(session->membership->node);
        if (found != wait.leavers.end() && found->second.outlives_job) {
            found->second.gone = true;
        }
    }
}

void DrainWaits::hang_up() {
    for (const Wait& wait : std::exchange(waits_, {})) {
        wait.session->close();
    }
}

void DrainWaits::note(const Event& event) {
    if (waits_.empty()) {
        return;
    }
    if (const auto* reported = std::get_if<NodeReported>(&event)) {
        hear(reported->node, reported->report);
    } else if (const auto* joined = std::get_if<NodeJoined>(&event)) {
        hear(joined->node, joined->report);
        look_again_ = true;  // One node may have left while this one joined.
    } else if (const auto* left = std::get_if<NodeLeft>(&event)) {
        for (Wait& wait : waits_) {
            if (const auto found = wait.leavers.find(left->node); found != wait.leavers.end()) {
                found->second.said_goodbye = true;
                found->second.killed = left->killed;
                found->second.reason = left->reason;
            }
        }
        look_again_ = true;
    }
}

/// Ended workers hold no step; the last step that they held is the one that they saved.
void DrainWaits::hear(const NodeId& node, const NodeReport& report) {
    for (Wait& wait : waits_) {
        if (const auto found = wait.leavers.find(node);
            found != wait.leavers.end() && report.held_step > 0) {
            found->second.step = report.held_step;
        }
    }
}

void DrainWaits::look(Leaver& leaver, const NodeId& id, const RendezvousCore& core) const {
    if (leaver.gone || leaver.outlives_job) {
        return;
    }
    leaver.outlives_job = core.phase() == Phase::closed && !leaver.said_goodbye;
    leaver.gone = !leaver.outlives_job && core.nodes_called(id) == 0;
}

void DrainWaits::answer_gone(const std::string& job, const RendezvousCore& core) {
    const bool closed = core.phase() == Phase::closed;
    if (waits_.empty() || (!closed && !look_again_ && core.nodes_count() == nodes_count_)) {
        return;
    }
    look_again_ = false;
    nodes_count_ = core.nodes_count();
    const bool saves = closed && core.verdict()->exit_code == kExitRequeue;
    const std::string why_not =
        closed ? "job " + job + " ended: " + describe(core.verdict()->reason) : std::string();
    std::erase_if(waits_, [&](Wait& wait) {
        bool all_gone = true;
        for (auto& [id, leaver] : wait.leavers) {
            look(leaver, id, core);
            all_gone = all_gone && leaver.gone;
        }
        if (!wait.accepted || !(all_gone || (closed && !saves))) {
            return false;
        }
        answer(wait, job, why_not);
        return true;
    });
}

void DrainWaits::answer_all(const std::string& job) {
    for (const Wait& wait : std::exchange(waits_, {})) {
        if (wait.accepted) {
            answer(wait, job, "the daemon of job " + job + " ended");
        }
    }
}

void DrainWaits::answer(const Wait& wait, const std::string& job, const std::string& why_not) {
    Operated result{true, ""};
    std::size_t shown = 0;
    for (const auto& [id, leaver] : wait.leavers) {
        const bool left =
            leaver.gone && (leaver.said_goodbye || leaver.outlives_job) && !leaver.killed;
        result.done = result.done && left;
        if (++shown > kNodesShownMax) {
            continue;
        }
        const std::string step = leaver.step == 0 ? ", without a committed step"
                                                  : " at step " + std::to_string(leaver.step);
        result.text += (result.text.empty() ? "" : "\n") + leaver.title;
        if (left) {
            result.text += " has left job " + job + step +
                           (leaver.reason.empty() ? "" : " (" + leaver.reason + ")");
        } else if (leaver.gone) {
            result.text += " was lost before it had left job " + job + ", after step " +
                           std::to_string(leaver.step) +
                           (leaver.reason.empty() ? "" : " (" + leaver.reason + ")");
        } else {
            result.text += " had not left when " + why_not;
        }
    }
    if (shown > kNodesShownMax) {
        result.text += "\nand " + std::to_string(shown - kNodesShownMax) + " more";
    }
    wait.session->send_last(result);
}

}  // namespace regroup::rendezvous
