// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/protocol/message_line.h"

#include <variant>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/text/describe.h"

namespace regroup::protocol {

using namespace rendezvous;  // NOLINT: the types of every message; this file is about them.

namespace {

std::string round_text(RoundId round) {
    return round == RoundId::none ? "no round" : "round " + std::to_string(number(round));
}

std::string report_text(const NodeReport& report) {
    std::string text = std::string(to_string(report.state)) + ", " + round_text(report.round);
    if (report.failure) {
        text += ", " + describe(*report.failure);
    }
    if (report.elastic) {
        text += ", elastic, step " + std::to_string(report.step);
        if (report.held_step != report.step) {
            text += report.held_step == 0 ? ", no state"
                                          : ", state of step " + std::to_string(report.held_step);
        }
    }
    if (report.at_work > Duration::zero()) {
        text += ", its workers in user code for at most " + format_duration(report.at_work);
    }
    if (!report.draining.empty()) {
        text += ", draining: " + report.draining;
    }
    if (report.hang) {
        text += ", " + report.hang->text;
    }
    for (const BrokenLink& link : report.broken_links) {
        text += ", rank " + std::to_string(link.rank) + " has lost rank " +
                std::to_string(link.peer) + " (" + link.text + ")";
    }
    return text;
}

std::string line(const Join& join) {
    return report_text(join.report);
}
std::string line(const Report& report) {
    return report_text(report.report);
}
std::string line(const Leave& leave) {
    return leave.reason;
}
std::string line(const Resumed& resumed) {
    return round_text(resumed.round) + ", step " + std::to_string(resumed.step);
}
std::string line(const LogPart& part) {
    return part.trouble.empty() ? part.file + " to " + std::to_string(part.offset) : part.trouble;
}
std::string line(const Operate& operate) {
    return std::string(to_string(operate.action)) +
           (operate.node.empty() ? "" : " " + operate.node) + " by " + operate.author;
}

std::string line(const Assign& message) {
    const Assignment& a = message.assignment;
    return round_text(a.round) + ": node " + std::to_string(a.group_rank) + " of " +
           std::to_string(a.group_world_size) + ", ranks from " + std::to_string(a.first_rank) +
           " of " + std::to_string(a.world_size) + ", master " + a.master_addr + ":" +
           std::to_string(a.master_port) + ", restarts " + std::to_string(a.restart_count) +
           ", because " + describe(a.reason);
}
std::string line(const Stop& stop) {
    return round_text(stop.round) + (stop.planned ? ", as planned: " : ": ") +
           describe(stop.reason);
}
std::string line(const Prepare& prepare) {
    return round_text(prepare.round) + (prepare.leave ? ", to leave: " : ": ") +
           describe(prepare.reason);
}
std::string line(const SaveStacks& save) {
    return round_text(save.round) + (save.positions_only ? ", positions only: " : ": ") +
           describe(save.reason);
}
std::string line(const EndWorker& end) {
    return round_text(end.round) + ", rank " + std::to_string(end.rank) + ": " +
           describe(end.reason);
}
std::string line(const ReadLog& read) {
    return "of rank " + std::to_string(read.wish.rank);
}
std::string line(const Recovered& recovered) {
    return describe(recovered.incident);
}
std::string line(const RankIsSlow& found) {
    return describe(found.slow, found.node);
}
std::string line(const Operated& operated) {
    return operated.text;
}
std::string line(const Elsewhere& elsewhere) {
    return elsewhere.endpoint;
}
std::string line(const Fenced& fenced) {
    return describe(fenced.reason);
}
std::string line(const Dismissed& dismissed) {
    return round_text(dismissed.round);
}
std::string line(const Alive& alive) {
    return round_text(alive.round);
}
std::string line(const Waiting& waiting) {
    std::string names;
    for (const std::string& name : waiting.joined) {
        names += (names.empty() ? "" : " ") + name;
    }
    return std::string(waiting.prestart ? "started; " : "") +
           (waiting.other_command ? "another command; " : "") +
           (waiting.standby ? "as a standby; here: " : "here: ") + names + "; " +
           describe(waiting.detail);
}
std::string line(const Refused& refused) {
    return describe(refused.reason);
}
std::string line(const Closed& closed) {
    return std::string(closed.missed ? "missed; " : "") +
           std::string(to_string(closed.verdict.outcome)) + " by " +
           describe(closed.verdict.author) + ": " + describe(closed.verdict.reason) + " (exit " +
           std::to_string(closed.verdict.exit_code) + ")";
}

template <class Message>
std::string joined(const Message& message) {
    const std::string text = std::visit([](const auto& m) { return line(m); }, message);
    return std::string(kind_of(message)) + (text.empty() ? "" : " " + text);
}

}  // namespace

std::string_view kind_of(const FromAgent& message) {
    return kAgentKinds[message.index()];
}

std::string_view kind_of(const FromDaemon& message) {
    return kDaemonKinds[message.index()];
}

std::string to_line(const FromAgent& message) {
    return joined(message);
}

std::string to_line(const FromDaemon& message) {
    const auto* recovered = std::get_if<Recovered>(&message);
    return recovered != nullptr ? line(*recovered) : joined(message);  // Its text says what it is.
}

std::string to_line(const NodeReport& report) {
    return report_text(report);
}

}  // namespace regroup::protocol
