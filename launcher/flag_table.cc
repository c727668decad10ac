// SPDX-License-Identifier: Apache-2.0
#include "launcher/flag_table.h"

#include <algorithm>
#include <cctype>
#include <cstdlib>
#include <sstream>
#include <string_view>
#include <utility>

#include "rendezvous/base/text.h"

extern char** environ;

namespace regroup::launcher {

namespace {

constexpr std::size_t kPrefixBytesMin = 5;  // "--" and three letters.
constexpr std::string_view kVariablePrefix = "PET_";
constexpr std::size_t kHelpColumn = 30;
constexpr std::size_t kHelpWidth = 68;

std::string with_underscores(std::string text) {
    std::replace(text.begin() + 2, text.end(), '-', '_');
    return text;
}

std::string variable_of(const std::string& flag) {
    std::string name = std::string(kVariablePrefix) + flag.substr(2);
    for (char& c : name) {
        c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return name;
}

// The rule of argparse: "-1", "-.5" and "-" are values, not flags.
bool looks_like_flag(const std::string& word) {
    return word.size() > 1 && word[0] == '-' && word.find(' ') == word.npos &&
           std::isdigit(static_cast<unsigned char>(word[1])) == 0 && word[1] != '.';
}

std::size_t edit_distance(const std::string& a, const std::string& b) {
    std::vector<std::size_t> row(b.size() + 1);
    for (std::size_t j = 0; j <= b.size(); ++j) {
        row[j] = j;
    }
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t substitution = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({row[j] + 1, row[j - 1] + 1, substitution});
        }
    }
    return row[b.size()];
}

std::string wrapped(const std::string& text, std::size_t column, std::size_t width) {
    std::istringstream words(text);
    std::string result;
    std::size_t used = 0;
    for (std::string word; words >> word;) {
        if (used > 0 && used + 1 + word.size() > width) {
            result += "\n" + std::string(column, ' ');
            used = 0;
        }
        result += (used > 0 ? " " : "") + word;
        used += (used > 0 ? 1 : 0) + word.size();
    }
    return result;
}

}  // namespace

std::optional<std::string> nearest(const std::string& word,
                                   std::span<const std::string> candidates) {
    std::optional<std::string> best;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        // The beginning of a flag counts as one wrong letter, however long the rest is.
        const bool begins = word.size() >= kPrefixBytesMin && candidate.starts_with(word);
        const std::size_t distance = begins ? 1 : edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

// ---- Declaring.

void FlagTable::value(Flag flag, Take take) {
    Entry entry;
    entry.flag = std::move(flag);
    entry.take = std::move(take);
    add(std::move(entry));
}

void FlagTable::toggle(Flag flag, bool& out) {
    Entry entry;
    entry.flag = std::move(flag);
    entry.toggle = &out;
    add(std::move(entry));
}

void FlagTable::add(Entry entry) {
    const std::size_t begin = entry.flag.names.find("--");
    entry.name = entry.flag.names.substr(begin);
    entry.letter = begin == 0 ? "" : entry.flag.names.substr(0, 2);
    entry.group = group_;
    if (entry.flag.variable.empty()) {
        entry.flag.variable = has_torchrun_ ? variable_of(entry.name) : "-";
    }
    entries_.push_back(std::move(entry));
}

std::vector<std::string> FlagTable::names() const {
    std::vector<std::string> all;
    for (const Entry& entry : entries_) {
        all.push_back(entry.name);
    }
    return all;
}

// ---- Parsing.

Failure FlagTable::complaint(const std::string& sentence) const {
    return Failure(Errc::invalid_argument, sentence);
}

Result<const FlagTable::Entry*> FlagTable::find(const std::string& word) const {
    std::vector<std::pair<std::string, const Entry*>> begun;
    std::vector<std::string> known;
    for (const bool own : {false, true}) {
        for (const Entry& entry : entries_) {
            for (const std::string& name :
                 std::set<std::string>{entry.name, with_underscores(entry.name)}) {
                known.push_back(name);
                if (word == name || word == entry.letter) {
                    return &entry;
                }
                if (entry.flag.own == own && word.size() > 2 && name.starts_with(word)) {
                    begun.emplace_back(name, &entry);
                }
            }
        }
        if (!begun.empty()) {
            break;
        }
    }
    if (begun.size() == 1) {
        return begun.front().second;
    }
    if (begun.size() > 1) {
        std::string names;
        for (const auto& [name, entry] : begun) {
            names += (names.empty() ? "" : ", ") + name;
        }
        return complaint("ambiguous flag " + word + ": it could be " + names +
                         "; write it in full");
    }
    const auto near = nearest(word, known);
    return complaint("unknown flag " + word + (near ? "; did you mean " + *near + "?" : "") + " (" +
                     command_ + " --help lists them all)");
}

Result<void> FlagTable::take(const Entry& entry, const std::string& value,
                             const std::string& source) {
    const std::string wrong = entry.take(value);
    return wrong.empty() ? Result<void>()
                         : Result<void>(complaint(entry.name + source + " " + wrong));
}

Result<void> FlagTable::read_environment() {
    for (const Entry& entry : entries_) {
        const std::string& variable = entry.flag.variable;
        const char* text = variable == "-" ? nullptr : std::getenv(variable.c_str());
        // The training operator of Kubeflow sets PET_STANDALONE to nothing.
        const bool is_empty_toggle = text != nullptr && *text == '\0' && entry.toggle != nullptr;
        if (text == nullptr || is_empty_toggle || given_.contains(entry.name)) {
            continue;
        }
        from_environment_.insert(entry.name);
        if (entry.toggle == nullptr) {
            if (Result<void> taken = take(entry, text, " (from " + variable + ")"); !taken) {
                return taken;
            }
            continue;
        }
        const auto number = parse_number<int>(text);
        if (!number) {
            return complaint(variable + "='" + text + "' must be 0 or 1");
        }
        *entry.toggle = *number != 0;
    }
    return {};
}

// No error: the variable may be meant for another program.
std::vector<std::string> FlagTable::misspelled_variables() const {
    std::vector<std::string> known;
    for (const Entry& entry : entries_) {
        if (entry.flag.variable.starts_with(kVariablePrefix)) {
            known.push_back(entry.flag.variable.substr(kVariablePrefix.size()));
        }
    }
    std::vector<std::string> lines;
    for (char** text = environ; *text != nullptr; ++text) {
        const std::string_view whole = *text;
        const std::string_view name = whole.substr(0, whole.find('='));
        if (!name.starts_with(kVariablePrefix)) {
            continue;
        }
        const std::string rest(name.substr(kVariablePrefix.size()));
        const bool is_known = std::find(known.begin(), known.end(), rest) != known.end();
        if (const auto near = is_known ? std::nullopt : nearest(rest, known)) {
            lines.push_back("the variable " + std::string(name) + " has no effect; did you mean " +
                            std::string(kVariablePrefix) + *near + "?");
        }
    }
    return lines;
}

Result<std::size_t> FlagTable::take_flag(std::span<const std::string> arguments, std::size_t at) {
    const std::string& argument = arguments[at];
    const bool is_long = argument.starts_with("--");
    std::string word = argument;
    std::optional<std::string> value;
    if (const std::size_t equals = argument.find('='); equals != argument.npos) {
        word = argument.substr(0, equals);
        value = argument.substr(equals + 1);
    } else if (!is_long && argument.size() > 2) {
        word = argument.substr(0, 2);
        value = argument.substr(2);
    }
    constexpr std::size_t kHelpBytesMin = 3;
    const bool is_help =
        word.size() >= kHelpBytesMin && std::string_view("--help").starts_with(word);
    if (word == "-h" || is_help) {
        help_asked_ = true;
        return at + 1;
    }
    const Result<const Entry*> found = find(word);
    if (!found) {
        return found.error();
    }
    const Entry& entry = **found;
    given_.insert(entry.name);
    if (entry.toggle != nullptr) {
        if (value) {
            return complaint(entry.name + " takes no value; it was given '" + *value + "'");
        }
        *entry.toggle = true;
        given_in_order_.push_back({entry.name, entry.name});
        return at + 1;
    }
    std::size_t next = at + 1;
    if (!value) {
        if (next == arguments.size() || looks_like_flag(arguments[next])) {
            return complaint(entry.name + " needs a value: " + entry.flag.example);
        }
        value = arguments[next++];
    }
    given_in_order_.push_back({entry.name, entry.name + "=" + *value});
    if (const Result<void> taken = take(entry, *value, ""); !taken && !complaint_) {
        complaint_ = taken.error();  // Returned later: a --help may follow.
    }
    return next;
}

Result<std::variant<std::vector<std::string>, ShowText>> FlagTable::parse(
    std::span<const std::string> arguments) {
    std::vector<std::string> words;
    std::size_t at = 0;
    while (at < arguments.size() && arguments[at] != "--") {
        if (arguments[at].size() < 2 || arguments[at][0] != '-') {
            if (first_word_is_program) {
                break;
            }
            words.push_back(arguments[at++]);
            continue;
        }
        const Result<std::size_t> next = take_flag(arguments, at);
        if (!next) {
            return next.error();
        }
        if (help_asked_) {
            return std::variant<std::vector<std::string>, ShowText>(ShowText{help()});
        }
        at = *next;
    }
    if (at < arguments.size() && arguments[at] == "--") {
        ++at;
    }
    if (complaint_) {
        return *complaint_;
    }
    if (const Result<void> read = read_environment(); !read) {
        return read.error();
    }
    words.insert(words.end(), arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
    return std::variant<std::vector<std::string>, ShowText>(std::move(words));
}

// ---- Help.

std::string FlagTable::help() const {
    std::string text = introduction + "\n\nUsage: " + usage + "\n";
    std::string group;
    for (const Entry& entry : entries_) {
        if (entry.group != group) {
            group = entry.group;
            text += "\n" + group + ":\n";
        }
        std::string left = "  " + (entry.letter.empty() ? "" : entry.letter + ", ") + entry.name +
                           (entry.flag.type.empty() ? "" : " " + entry.flag.type);
        left += left.size() + 2 > kHelpColumn ? "\n" + std::string(kHelpColumn, ' ')
                                              : std::string(kHelpColumn - left.size(), ' ');
        const bool has_variable = entry.flag.variable != "-";
        const std::string value =
            entry.flag.default_value.empty() ? "" : " [" + entry.flag.default_value + "]";
        text += left + wrapped(entry.flag.help + value + (has_variable ? "" : " (no variable)"),
                               kHelpColumn, kHelpWidth);
        if (!entry.flag.example.empty()) {
            text += "\n" + std::string(kHelpColumn, ' ') + "e.g. " + entry.flag.example;
        }
        text += "\n";
    }
    return text + "\n" + footer + "\n";
}

}  // namespace regroup::launcher
