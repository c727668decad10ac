// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <array>
#include <iterator>
#include <utility>

#include "agent/explain/explanation.h"

namespace regroup::agent {
namespace {

constexpr std::size_t kCulpritsShown = 16;
constexpr std::size_t kPartsShown = 32;  ///< Of a list of ranks.
constexpr std::size_t kStuckShown = 16;

using Lines = std::vector<std::string>;

/// "rank 3", "ranks 0-5, 7"
std::string name(const Ranks& ranks) {
    std::string text;
    std::size_t parts = 0;
    for (std::size_t i = 0; i < ranks.size(); ++parts) {
        std::size_t last = i;
        while (last + 1 < ranks.size() && ranks[last + 1] == ranks[last] + 1) {
            ++last;
        }
        if (parts == kPartsShown) {
            text += ", and " + std::to_string(ranks.size() - i) + " more";
            break;
        }
        text += (text.empty() ? "" : ", ") + std::to_string(ranks[i]) +
                (last > i ? (last > i + 1 ? "-" : ", ") + std::to_string(ranks[last]) : "");
        i = last + 1;
    }
    return ranks.empty() ? "no rank" : (ranks.size() == 1 ? "rank " : "ranks ") + text;
}

std::string capital(std::string text) {
    if (!text.empty() && text.front() >= 'a' && text.front() <= 'z') {
        text.front() = static_cast<char>(text.front() - 'a' + 'A');
    }
    return text;
}

/// The verb for one rank or several.
std::string verb(const Ranks& ranks, const char* one, const char* several) {
    return ranks.size() == 1 ? one : several;
}

std::string name(const StuckCollective& stuck) {
    return stuck.operation + " #" + std::to_string(stuck.number) + " of group \"" + stuck.group +
           "\"";
}

/// "is stopped, by a signal or by a debugger; in step 100, section 'work'"
std::string place_of(const RankFacts& rank) {
    std::string text;
    const auto add = [&text](const std::string& part) {
        text += (text.empty() ? "" : ", ") + part;
    };
    if (rank.state == ProcessState::stopped) {
        add("its process is stopped, by a signal or by a debugger");
    } else if (rank.state == ProcessState::gone) {
        add("its process is gone");
    } else if (rank.state == ProcessState::finished) {
        add("finished with exit code 0");
    } else if (rank.state == ProcessState::unknown) {
        add("nothing here says where it is");
    }
    if (rank.step) {
        add("in step " + std::to_string(*rank.step));
    }
    if (!rank.doing.empty()) {
        add((rank.waiting ? "waits in " : "in ") + rank.doing);
    }
    if (text.empty()) {
        add(rank.frames.empty() ? "its process runs" : "its process runs in:");
    }
    return text;
}

Lines conclusion_of(const StuckCollective& stuck) {
    Lines lines;
    const auto add = [&lines](const Ranks& ranks, const std::string& line) {
        if (!ranks.empty()) {
            lines.push_back(line);
        }
    };
    const auto have = [](const Ranks& ranks) { return verb(ranks, "has", "have"); };
    add(stuck.entered, capital(name(stuck.entered)) + " " + verb(stuck.entered, "waits", "wait") +
                           " in " + name(stuck) + ".");
    add(stuck.not_entered,
        capital(name(stuck.not_entered)) + " " + have(stuck.not_entered) + " not entered it.");
    add(stuck.unknown, "No flight record says whether " + name(stuck.unknown) + " " +
                           have(stuck.unknown) + " entered it.");
    add(stuck.not_started,
        "On " + name(stuck.not_started) + " it is called, but its device has not begun it.");
    return lines;
}

std::string sentence_for(const Explanation& result) {
    const std::string who = name(result.culprits);
    switch (result.kind) {
        case HangKind::mismatch:
            return "Ranks call different collectives. Look at " + who + " first.";
        case HangKind::gone:
            return "The others wait for " + who + ", whose process is gone.";
        case HangKind::finished:
            return capital(who) + " finished with exit code 0, and the others may wait for " +
                   verb(result.culprits, "it", "them") + ".";
        case HangKind::not_entered:
            return "The others wait for " + who + ".";
        case HangKind::circle:
            return "Ranks wait for each other in different groups. All ranks must call the "
                   "collectives of all groups in the same order.";
        case HangKind::not_started:
            return "All ranks have called the collective. The devices of " + who +
                   " are busy with earlier work.";
        case HangKind::all_entered:
            return "All ranks have entered the collective, and it makes no progress. Look at the "
                   "network between them, and at their devices.";
        case HangKind::message:
            return "Messages wait for ranks that the records do not name.";
        case HangKind::older_step:
            return "No flight record has an open collective. " + capital(who) +
                   verb(result.culprits, " is", " are") + " behind, in an older step.";
        case HangKind::stopped:
            return "No flight record has an open collective. " + capital(who) +
                   verb(result.culprits, " is", " are") + " stopped, by a signal or by a debugger.";
        case HangKind::nothing:
            break;
    }
    return "No flight record has an open collective, and no rank is stopped, gone, finished or "
           "behind. The saved stacks may say more.";
}

void add_block(const StuckCollective& stuck, Lines& lines) {
    std::string head =
        name(stuck) + " (" + std::string(to_string(stuck.recorder)) + "'s record, " + stuck.backend;
    if (stuck.elements && *stuck.elements > 0) {
        head += ", " + std::to_string(*stuck.elements) + " elements" +
                (stuck.type.empty() ? "" : " of type " + stuck.type);
    }
    head += ", " + std::to_string(stuck.members.size()) + " ranks" +
            (stuck.members_are_known ? "" : " at least") + ")";
    lines.push_back(head);
    const auto add = [&lines](const std::string& what, const Ranks& ranks) {
        if (!ranks.empty()) {
            lines.push_back("  " + what + name(ranks));
        }
    };
    add("entered:       ", stuck.entered);
    add("not begun:     ", stuck.not_started);
    add("completed:     ", stuck.completed);
    add("not entered:   ", stuck.not_entered);
    add("no record:     ", stuck.unknown);
    for (const Mismatch& mismatch : stuck.mismatches) {
        std::string line = "  different " + std::string(mismatch.what) + ":";
        for (const Mismatch::Side& side : mismatch.sides) {
            line += " " + side.value + " on " + name(side.ranks) + ";";
        }
        line.pop_back();
        lines.push_back(line);
    }
    for (const std::string& frame : stuck.frames) {
        lines.push_back("    " + frame);
    }
}

/// "and 3 more groups", if that many are left out.
void add_rest(std::size_t count, std::size_t shown, const std::string& what, Lines& lines) {
    if (count > shown) {
        lines.push_back("and " + std::to_string(count - shown) + " more " + what);
    }
}

void add_messages(const Explanation& result, Lines& lines) {
    for (std::size_t i = 0; i < std::min(result.messages.size(), kStuckShown); ++i) {
        const StuckMessage& message = result.messages[i];
        lines.push_back("rank " + std::to_string(message.rank) + " waits in " + message.operation +
                        " #" + std::to_string(message.number) + " of group \"" + message.group +
                        "\"" + (message.peer ? ", for rank " + std::to_string(*message.peer) : ""));
    }
    add_rest(result.messages.size(), kStuckShown, "messages", lines);
}

void add_places(const HangFacts& facts, const Explanation& result, Lines& lines) {
    for (std::size_t i = 0; i < std::min(result.culprits.size(), kCulpritsShown); ++i) {
        const RankFacts* const rank = find_rank(facts, result.culprits[i]);
        if (rank == nullptr) {
            continue;
        }
        std::string head = "rank " + std::to_string(rank->rank);
        if (!rank->node.empty()) {
            head += " on " + rank->node;
        }
        head += rank->pid != 0 ? ", pid " + std::to_string(rank->pid) : "";
        lines.push_back(head + ": " + place_of(*rank));
        for (const std::string& frame : rank->frames) {
            lines.push_back("    " + frame);
        }
    }
    add_rest(result.culprits.size(), kCulpritsShown, "ranks", lines);
}

Ranks ranks_without_record(const HangFacts& facts) {
    Ranks ranks;
    for (const RankFacts& rank : facts.ranks) {
        if (rank.records.empty()) {
            ranks.push_back(rank.rank);
        }
    }
    return ranks;
}

}  // namespace

std::vector<std::string> text_of(const HangFacts& facts, const Explanation& result) {
    Lines lines;
    if (!facts.reason.empty()) {
        lines.push_back("job " + facts.job + ", round " + std::to_string(facts.round) + ": " +
                        facts.reason);
    }
    lines.push_back(sentence_for(result));
    if (result.collectives.size() == 1) {
        const Lines more = conclusion_of(result.collectives.front());
        lines.insert(lines.end(), more.begin(), more.end());
    }
    if (!result.behind.empty() && result.kind != HangKind::older_step) {
        lines.push_back(capital(name(result.behind)) + verb(result.behind, " is", " are") +
                        " in an older step than the others.");
    }
    lines.emplace_back();
    for (std::size_t i = 0; i < std::min(result.collectives.size(), kStuckShown); ++i) {
        add_block(result.collectives[i], lines);
    }
    add_rest(result.collectives.size(), kStuckShown, "groups", lines);
    add_messages(result, lines);
    add_places(facts, result, lines);
    if (const Ranks none = ranks_without_record(facts); !none.empty()) {
        lines.push_back("no flight record: " + name(none));
    }
    return lines;
}

}  // namespace regroup::agent
