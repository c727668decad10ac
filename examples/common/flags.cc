// SPDX-License-Identifier: Apache-2.0
#include "flags.h"

#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdio>
#include <numeric>
#include <string_view>
#include <utility>

namespace example {
namespace {

/// The shortest form: 0, 0.5, 1e+06.
template <class Number>
std::string text_of(Number value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

template <class Number>
Number number(const std::string& flag, const std::string& text, Number min, Number max) {
    Number value{};
    const char* const end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, value);
    if (error != std::errc() || stop != end || !(value >= min) || !(value <= max)) {
        throw UsageError(flag + " takes a number from " + text_of(min) + " to " + text_of(max) +
                         ", not '" + text + "'");
    }
    return value;
}

/// The edit distance: letters that must be added, removed or replaced.
std::size_t distance(std::string_view from, std::string_view to) {
    std::vector<std::size_t> row(to.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= from.size(); ++i) {
        std::size_t diagonal = std::exchange(row[0], i);
        for (std::size_t j = 1; j <= to.size(); ++j) {
            const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
            diagonal = row[j];
            row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
        }
    }
    return row.back();
}

/// `left`, and `right` in a column of its own.
std::string in_columns(std::string left, const std::string& right) {
    left.resize(std::max<std::size_t>(left.size(), 25), ' ');
    return "  " + left + right + "\n";
}

}  // namespace

void Flags::add(std::string name, std::int64_t& target, Range range, const std::string& help) {
    flags_.push_back({std::move(name), "N", help + " (" + std::to_string(target) + ")",
                      [&target, range](const std::string& flag, const std::string& text) {
                          target = number(flag, text, range.min, range.max);
                      }});
}
void Flags::add(std::string name, double& target, const std::string& help) {
    flags_.push_back({std::move(name), "X", help + " (" + text_of(target) + ")",
                      [&target](const std::string& flag, const std::string& text) {
                          target = number(flag, text, 0.0, 1e6);
                      }});
}
void Flags::add(std::string name, std::string& target, std::string help) {
    flags_.push_back({std::move(name), "TEXT", std::move(help),
                      [&target](const std::string&, const std::string& text) { target = text; }});
}
void Flags::add(std::string name, bool& target, std::string help) {
    flags_.push_back({std::move(name), "", std::move(help),
                      [&target](const std::string&, const std::string&) { target = true; }});
}
void Flags::add(std::string name, std::vector<std::string>& target, std::string help) {
    flags_.push_back(
        {std::move(name), "TEXT..", std::move(help),
         [&target](const std::string&, const std::string& text) { target.push_back(text); }, true});
}
void Flags::add_backend(std::string& backend) {
    add("--backend", backend, "cpu, or nccl for GPUs (" + backend + ")");
}

bool Flags::parse(int argc, char** argv) const {
    const std::vector<std::string> words(argv + 1, argv + argc);
    std::size_t positional_count = 0;
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (words[i] == "--help" || words[i] == "-h") {
            return false;
        }
        if (!words[i].starts_with("-")) {
            if (positional_count == positional_.size()) {
                throw UsageError("'" + words[i] + "' belongs to no flag; --help lists them");
            }
            const Flag& flag = find(positional_[positional_count++]);
            flag.set(flag.name, words[i]);
            continue;
        }
        if (words[i].starts_with("--help=")) {
            throw UsageError("--help takes no value");
        }
        const std::size_t equals = words[i].find('=');
        const Flag& flag = find(words[i].substr(0, equals));
        if (flag.argument.empty() && equals != std::string::npos) {
            throw UsageError(flag.name + " takes no value");
        }
        if (flag.argument.empty() || equals != std::string::npos) {
            flag.set(flag.name, flag.argument.empty() ? "" : words[i].substr(equals + 1));
        } else if (i + 1 == words.size()) {
            throw UsageError(flag.name + " needs a value");
        } else {
            do {
                flag.set(flag.name, words[++i]);
            } while (flag.takes_many && i + 1 < words.size() && !words[i + 1].starts_with("-"));
        }
    }
    return true;
}

std::string Flags::usage() const {
    std::string text = program_ + ": " + about_ + "\n\n";
    for (const Flag& flag : flags_) {
        text += in_columns(flag.name + " " + flag.argument, flag.help);
    }
    if (!positional_.empty()) {
        text += "\nThe values of";
        for (const std::string& name : positional_) {
            text += " " + name;
        }
        text += " may also be given in this order, without the flags.\n";
    }
    return text;
}

const Flags::Flag& Flags::find(std::string name) const {
    std::ranges::replace(name, '_', '-');
    const auto found = std::ranges::find(flags_, name, &Flag::name);
    if (found != flags_.end()) {
        return *found;
    }
    std::string known = "--help";
    for (const Flag& flag : flags_) {
        known = distance(name, flag.name) < distance(name, known) ? flag.name : known;
    }
    constexpr std::size_t kDistanceMax = 2;  // a larger distance is no typing mistake
    throw UsageError("unknown flag " + name +
                     (distance(name, known) <= kDistanceMax ? "; did you mean " + known + "?"
                                                            : "; --help lists them"));
}

int run_main(const Flags& flags, int argc, char** argv,
             const std::function<void(const regroup::Context&)>& body) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // Line-buffered, also in a pipe.
    regroup::Context context;
    try {
        if (!flags.parse(argc, argv)) {
            std::fputs(flags.usage().c_str(), stdout);
            return 0;
        }
        context = regroup::Context::from_environment();
        body(context);
        return 0;
    } catch (const UsageError& error) {
        std::fprintf(stderr, "%s: %s\n", flags.program().c_str(), error.what());
        return 2;
    } catch (const regroup::Error& error) {
        const std::string who =
            context.world_size == 1 ? flags.program() : "rank " + std::to_string(context.rank);
        std::fprintf(stderr, "%s: %s\n", who.c_str(), error.what());
        return 1;
    }
}

int run_command(const std::string& program, const std::vector<Command>& commands, int argc,
                char** argv) {
    const std::string name = argc > 1 ? argv[1] : "--help";
    for (const Command& command : commands) {
        if (command.name == name) {
            return command.run(argc - 1, argv + 1);
        }
    }
    const bool asked = name == "--help" || name == "-h";
    std::FILE* const out = asked && argc > 1 ? stdout : stderr;
    if (!asked) {
        std::fprintf(out, "%s: there is no command '%s'\n", program.c_str(), name.c_str());
    }
    std::fprintf(out, "usage: %s COMMAND FLAGS...; each command explains itself: --help\n\n",
                 program.c_str());
    for (const Command& command : commands) {
        std::fputs(in_columns(command.name, command.about).c_str(), out);
    }
    return out == stdout ? 0 : 2;
}

void require_ranks(const regroup::Context& context, std::uint32_t least) {
    if (context.world_size < least) {
        throw UsageError("needs at least " + std::to_string(least) +
                         " ranks; start it with: regroup run --standalone --nproc-per-node=" +
                         std::to_string(least));
    }
}

}  // namespace example
