// SPDX-License-Identifier: Apache-2.0
#include "tests/support/transcript.h"

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <variant>

namespace regroup::test {

namespace {

using namespace rendezvous;

std::string round_text(RoundId round) {
    return round == RoundId::none ? "no round" : "round " + std::to_string(number(round));
}

std::string report_text(const NodeReport& report) {
    std::string text = std::string(to_string(report.state)) + ", " + round_text(report.round);
    if (report.failure) {
        text += ", " + describe(*report.failure);
    }
    if (report.resident) {
        text += ", resident, step " + std::to_string(report.step);
    }
    if (!report.draining.empty()) {
        text += ", draining: " + report.draining;
    }
    if (report.hang) {
        text += ", " + report.hang->text;
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
std::string line(const Operate& operate) {
    return operate.node + " " + operate.reason + " by " + operate.author;
}

std::string line(const Assign& message) {
    const Assignment& a = message.assignment;
    return round_text(a.round) + ": node " + std::to_string(a.group_rank) + " of " +
           std::to_string(a.group_world_size) + ", ranks from " + std::to_string(a.first_rank) +
           " of " + std::to_string(a.world_size) + ", master " + a.master_addr + ":" +
           std::to_string(a.master_port) + ", restarts " + std::to_string(a.restart_count) +
           ", because " + a.reason;
}
std::string line(const Stop& stop) {
    return round_text(stop.round) + ": " + stop.reason;
}
std::string line(const Prepare& prepare) {
    return round_text(prepare.round) + (prepare.leave ? ", to leave: " : ": ") + prepare.reason;
}
std::string line(const SaveStacks& save) {
    return round_text(save.round) + ": " + save.reason;
}
std::string line(const EndWorker& end) {
    return round_text(end.round) + ", rank " + std::to_string(end.rank) + ": " + end.reason;
}
std::string line(const Recovered& recovered) {
    return describe(recovered.incident);
}
std::string line(const Operated& operated) {
    return operated.text;
}
std::string line(const Elsewhere& elsewhere) {
    return elsewhere.endpoint;
}
std::string line(const Fenced& fenced) {
    return fenced.reason;
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
           (waiting.spare ? "as a spare; here: " : "here: ") + names + "; " + waiting.detail;
}
std::string line(const Refused& refused) {
    return refused.reason;
}
std::string line(const Closed& closed) {
    return std::string(to_string(closed.verdict.outcome)) + " by " + closed.verdict.author + ": " +
           closed.verdict.reason + " (exit " + std::to_string(closed.verdict.exit_code) + ")";
}

template <class Message>
std::string joined(const Message& message) {
    const std::string text = std::visit([](const auto& m) { return line(m); }, message);
    return std::string(kind_of(message)) + (text.empty() ? "" : " " + text);
}

// The first lines that differ, with what was expected above what came.
std::string first_difference(const std::string& expected, const std::string& actual) {
    std::istringstream a(expected);
    std::istringstream b(actual);
    std::string x;
    std::string y;
    for (int number = 1;; ++number) {
        const bool more_a = static_cast<bool>(std::getline(a, x));
        const bool more_b = static_cast<bool>(std::getline(b, y));
        if (!more_a && !more_b) {
            return {};
        }
        if (!more_a || !more_b || x != y) {
            return "line " + std::to_string(number) + "\n  expected: " + (more_a ? x : "(end)") +
                   "\n  actual:   " + (more_b ? y : "(end)") +
                   "\nIf the new behaviour is understood and right, run again with "
                   "REGROUP_REWRITE=1 and review the change as prose.\n";
        }
    }
}

std::string contents_of(const std::string& path) {
    std::ifstream file(path);
    std::ostringstream text;
    text << file.rdbuf();
    return text.str();
}

}  // namespace

std::string_view kind_of(const FromAgent& message) {
    static constexpr std::string_view kNames[] = {"join", "report", "leave", "resumed",
                                                  "operate"};
    return kNames[message.index()];
}

std::string_view kind_of(const FromDaemon& message) {
    static constexpr std::string_view kNames[] = {
        "assign",    "stop",  "prepare", "save_stacks", "end_worker", "fenced",   "dismissed",
        "alive",     "waiting", "refused", "recovered", "closed",     "operated", "elsewhere"};
    return kNames[message.index()];
}

std::string to_line(const FromAgent& message) {
    return joined(message);
}
std::string to_line(const FromDaemon& message) {
    return joined(message);
}

std::string play(const std::string& path, const Interpreter& interpreter) {
    std::istringstream source(contents_of(path));
    std::string result;
    std::string input;
    bool output_of_last_time = false;
    std::vector<std::string> happened;
    bool commands_pending = false;
    const auto finish_block = [&] {
        if (commands_pending) {
            result += "----\n";
            if (happened.empty()) {
                happened.emplace_back("(quiet)");
            }
            for (const std::string& happening : happened) {
                result += happening + "\n";
            }
        }
        happened.clear();
        commands_pending = false;
    };
    while (std::getline(source, input)) {
        if (input.empty()) {
            finish_block();
            output_of_last_time = false;
            result += "\n";
        } else if (output_of_last_time) {
            continue;
        } else if (input == "----") {
            output_of_last_time = true;
        } else {
            result += input + "\n";
            if (!input.starts_with('#')) {
                for (std::string& happening : interpreter(input)) {
                    happened.push_back(std::move(happening));
                }
                commands_pending = true;
            }
        }
    }
    finish_block();
    return result;
}

std::string check_transcript(const std::string& path, const Interpreter& interpreter) {
    const std::string actual = play(path, interpreter);
    if (actual.empty()) {
        return "cannot read the transcript " + path + "\n";
    }
    const char* rewrite = std::getenv("REGROUP_REWRITE");
    if (rewrite != nullptr && std::string_view(rewrite) == "1") {
        std::ofstream(path) << actual;
        return {};
    }
    return first_difference(contents_of(path), actual);
}

}  // namespace regroup::test
