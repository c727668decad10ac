// SPDX-License-Identifier: Apache-2.0
#include "launcher/cluster/host_file.h"

#include <algorithm>
#include <map>
#include <utility>

#include "launcher/cluster/host_list.h"
#include "rendezvous/base/text.h"

namespace regroup::launcher {
namespace {

constexpr std::uint32_t kSlotsMax = 65536;
constexpr std::string_view kLetters =
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-_.";
constexpr std::string_view kBlanks = " \t\r\v\f";

std::string quote(std::string_view text) {
    constexpr std::size_t kShownMax = 80;
    return "'" + std::string(text.substr(0, kShownMax)) + (text.size() > kShownMax ? "..." : "") +
           "'";
}

// A name that begins with a dash would be a flag of ssh.
bool consists_of(std::string_view text, const std::string& letters) {
    return !text.empty() && text.front() != '-' && text.size() <= kHostNameMax &&
           text.find_first_not_of(letters) == text.npos;
}

Result<std::uint32_t> parse_slots(std::string_view text) {
    const auto number = parse_number<std::uint32_t>(text);
    if (!number || *number == 0 || *number > kSlotsMax) {
        return invalid_argument(quote(text) + " is no number of workers from 1 to " +
                                std::to_string(kSlotsMax));
    }
    return *number;
}

Result<void> check_user(std::string_view user) {
    return consists_of(user, std::string(kLetters) + "@+")
               ? Result<void>()
               : invalid_argument(quote(user) + " is no user name");
}

Result<void> check_switches(std::string_view path) {
    constexpr std::ptrdiff_t kSwitchesMax = 16;
    if (!consists_of(path, std::string(kLetters)) || path.starts_with('.') || path.ends_with('.') ||
        path.find("..") != path.npos || std::ranges::count(path, '.') >= kSwitchesMax) {
        return invalid_argument(quote(path) + " is no path of at most " +
                                std::to_string(kSwitchesMax) + " switches like s0.s4");
    }
    return {};
}

bool is_ipv6(std::string_view text) {
    return std::ranges::count(text, ':') > 1;
}

// "[fd00::7]:8" to "fd00::7" and ":8"; also "fd00::7" and "".
Result<std::pair<std::string_view, std::string_view>> split_ipv6(std::string_view text) {
    if (!text.starts_with('[')) {
        return std::pair(text, std::string_view());
    }
    const std::size_t end = text.find(']');
    if (end == text.npos) {
        return invalid_argument("the bracket of " + quote(text) + " is not closed");
    }
    return std::pair(text.substr(1, end - 1), text.substr(end + 1));
}

// The hosts of one item: "[USER@]HOST[:N]".
Result<std::vector<HostEntry>> parse_item(std::string_view item) {
    HostEntry entry;
    std::string_view rest = item;
    if (const std::size_t at = rest.rfind('@'); at != rest.npos) {
        entry.user = rest.substr(0, at);
        rest.remove_prefix(at + 1);
        if (const Result<void> checked = check_user(entry.user); !checked) {
            return checked.error();
        }
    }
    std::string_view number;
    std::vector<std::string> names;
    if (is_ipv6(rest)) {
        const auto split = split_ipv6(rest);
        if (!split) {
            return split.error();
        }
        names.emplace_back(split->first);
        number = split->second;
        if (!number.empty() && !number.starts_with(':')) {
            return invalid_argument(quote(item) +
                                    ": after the bracket there must be :N or nothing");
        }
    } else {
        const std::size_t colon = std::min(rest.rfind(':'), rest.size());
        number = rest.substr(colon);
        if (colon == 0) {
            return invalid_argument(quote(item) + ": the host is missing");
        }
        Result<std::vector<std::string>> expanded = expand_host_list(rest.substr(0, colon));
        if (!expanded) {
            return expanded.error();
        }
        names = *std::move(expanded);
    }
    if (!number.empty()) {
        const Result<std::uint32_t> slots = parse_slots(number.substr(1));
        if (!slots) {
            return invalid_argument(quote(item) + ": " + slots.error().detail);
        }
        entry.slots = *slots;
    }
    std::vector<HostEntry> entries;
    for (std::string& name : names) {
        if (!consists_of(name, std::string(kLetters) + (is_ipv6(name) ? ":%" : ""))) {
            return invalid_argument(quote(name) + " is no host name or address");
        }
        entry.host = std::move(name);
        entries.push_back(entry);
    }
    return entries;
}

// One setting of a line of a host file.
Result<void> apply_setting(HostEntry& entry, std::optional<std::uint32_t>& slots_max,
                           std::string_view word) {
    const std::size_t equals = word.find('=');
    const std::string_view key = word.substr(0, equals);
    const std::string_view value = equals == word.npos ? "" : word.substr(equals + 1);
    if (key == "user" || key == "username") {
        if (!entry.user.empty()) {
            return invalid_argument("the user is given twice");
        }
        entry.user = value;
        return check_user(value);
    }
    if (key == "switch") {
        if (!entry.switches.empty()) {
            return invalid_argument("the switch is given twice");
        }
        entry.switches = value;
        return check_switches(value);
    }
    const bool is_limit = key == "max_slots" || key == "max-slots";
    if (!is_limit && key != "slots") {
        return invalid_argument(quote(word) +
                                " is unknown; known are slots=N, max_slots=N, "
                                "user=NAME and switch=PATH");
    }
    std::optional<std::uint32_t>& out = is_limit ? slots_max : entry.slots;
    if (out) {
        return invalid_argument("the number of workers is given twice");
    }
    const Result<std::uint32_t> number = parse_slots(value);
    if (!number) {
        return number.error();
    }
    out = *number;
    return {};
}

// Blanks instead of comments, and no blanks around "=". Line ends stay.
std::string without_comments(std::string_view text) {
    std::string plain;
    bool in_block = false;
    for (std::size_t i = 0; i < text.size(); ++i) {
        const std::string_view rest = text.substr(i);
        if (in_block) {
            in_block = !rest.starts_with("*/");
            i += in_block ? 0 : 1;
            plain += text[i] == '\n' ? '\n' : ' ';
        } else if (rest.starts_with("/*")) {
            in_block = true;
            ++i;
            plain += ' ';
        } else if (rest.starts_with("#") || rest.starts_with("//")) {
            i = std::min(text.find('\n', i), text.size()) - 1;
        } else {
            plain += text[i];
        }
    }
    return plain;
}

std::vector<std::string_view> words_of(std::string_view line) {
    std::vector<std::string_view> words;
    while (true) {
        const std::size_t begin = line.find_first_not_of(kBlanks);
        if (begin == line.npos) {
            return words;
        }
        line.remove_prefix(begin);
        words.push_back(line.substr(0, line.find_first_of(kBlanks)));
        line.remove_prefix(words.back().size());
    }
}

// "slots = 8" as one word.
std::string joined_at_equals(std::string_view line) {
    std::string joined;
    for (const std::string_view word : words_of(line)) {
        const bool joins = joined.empty() || joined.ends_with('=') || word.starts_with('=');
        joined += (joins ? "" : " ") + std::string(word);
    }
    return joined;
}

Result<std::vector<HostEntry>> parse_line(const std::vector<std::string_view>& words) {
    Result<std::vector<HostEntry>> entries = parse_item(words.front());
    if (!entries) {
        return entries;
    }
    for (HostEntry& entry : *entries) {
        std::optional<std::uint32_t> slots_max;
        for (std::size_t i = 1; i < words.size(); ++i) {
            if (const Result<void> applied = apply_setting(entry, slots_max, words[i]); !applied) {
                return applied.error();
            }
        }
        if (slots_max && entry.slots.value_or(1) > *slots_max) {
            return invalid_argument("slots=" + std::to_string(*entry.slots) +
                                    " is above max_slots=" + std::to_string(*slots_max));
        }
        entry.slots = entry.slots ? entry.slots : slots_max;
    }
    return entries;
}

/// The hosts so far, each once.
class Hosts {
   public:
    /// `place` is where the entry stands: "line 7". Errors: the host is there already.
    Result<void> add(HostEntry entry, const std::string& place, bool counts_lines) {
        const auto [found, is_new] = seen_.try_emplace(entry.host, Seen{entries_.size(), place, 1});
        if (!is_new) {
            HostEntry& first = entries_[found->second.index];
            const bool is_counted = counts_lines && !entry.slots && entry.user == first.user &&
                                    (!first.slots || found->second.lines > 1);
            if (!is_counted || found->second.lines >= kSlotsMax) {
                return invalid_argument(quote(entry.host) + " stands there twice, first in " +
                                        found->second.place +
                                        "; write it once, with the number of its workers");
            }
            first.slots = ++found->second.lines;
            return {};
        }
        if (entries_.size() == kHostsMax) {
            return invalid_argument("more than " + std::to_string(kHostsMax) + " hosts");
        }
        entries_.push_back(std::move(entry));
        return {};
    }
    [[nodiscard]] std::vector<HostEntry> take() { return std::move(entries_); }

   private:
    struct Seen {
        std::size_t index;
        std::string place;
        std::uint32_t lines;
    };
    std::vector<HostEntry> entries_;
    std::map<std::string, Seen> seen_;
};

// The items of a list: commas inside brackets separate nothing.
std::vector<std::string_view> items_of(std::string_view list) {
    std::vector<std::string_view> items;
    std::size_t begin = 0;
    bool in_brackets = false;
    for (std::size_t i = 0; i <= list.size(); ++i) {
        if (i < list.size() && (list[i] == '[' || list[i] == ']')) {
            in_brackets = list[i] == '[';
        }
        if (i == list.size() || (list[i] == ',' && !in_brackets)) {
            items.push_back(list.substr(begin, i - begin));
            begin = i + 1;
        }
    }
    return items;
}

}  // namespace

std::string HostEntry::destination() const {
    return user.empty() ? host : user + "@" + host;
}

Result<std::vector<HostEntry>> parse_host_list(std::string_view text) {
    Hosts hosts;
    for (const std::string_view item : items_of(text)) {
        const std::vector<std::string_view> words = words_of(item);
        if (words.size() != 1) {
            return invalid_argument(
                words.empty() ? "a host is missing between two commas, or the list is empty"
                              : quote(item) + " is no host; commas separate the hosts");
        }
        Result<std::vector<HostEntry>> entries = parse_item(words.front());
        if (!entries) {
            return entries;
        }
        for (HostEntry& entry : *entries) {
            if (const Result<void> added = hosts.add(std::move(entry), quote(item), false);
                !added) {
                return added.error();
            }
        }
    }
    return hosts.take();
}

Result<std::vector<HostEntry>> parse_host_file(std::string_view text, const std::string& name) {
    if (text.size() > kHostFileBytesMax) {
        return invalid_argument(name + " is larger than " +
                                std::to_string(kHostFileBytesMax >> 20U) +
                                " MiB; it is no host file");
    }
    // Editors of Windows begin a file so.
    constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";
    text.remove_prefix(text.starts_with(kByteOrderMark) ? kByteOrderMark.size() : 0);
    Hosts hosts;
    const std::string plain = without_comments(text);
    std::size_t number = 0;
    for (std::size_t begin = 0; begin < plain.size();) {
        const std::size_t end = std::min(plain.find('\n', begin), plain.size());
        const std::string line =
            joined_at_equals(std::string_view(plain).substr(begin, end - begin));
        begin = end + 1;
        const std::string place = "line " + std::to_string(++number);
        if (line.empty()) {
            continue;
        }
        Result<std::vector<HostEntry>> entries = parse_line(words_of(line));
        if (!entries) {
            return invalid_argument(name + ", " + place + ": " + entries.error().detail);
        }
        for (HostEntry& entry : *entries) {
            if (const Result<void> added = hosts.add(std::move(entry), place, true); !added) {
                return invalid_argument(name + ", " + place + ": " + added.error().detail);
            }
        }
    }
    std::vector<HostEntry> all = hosts.take();
    return all.empty() ? Result<std::vector<HostEntry>>(invalid_argument(name + " names no host"))
                       : Result<std::vector<HostEntry>>(std::move(all));
}

}  // namespace regroup::launcher
