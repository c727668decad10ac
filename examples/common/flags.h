// SPDX-License-Identifier: Apache-2.0
// The command line of an example. A mistake is reported in one line.
#pragma once

#include <regroup/context.h>
#include <regroup/error.h>

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdint>
#include <cstdio>
#include <functional>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace example {

/// A wrong command line. what() describes the mistake in one line.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

struct Range {
    std::int64_t min = 0;
    std::int64_t max = 1'000'000'000;
};

/// The flags of a program. Each writes to a variable of the caller. Its value at that time is the
/// default. `--a-b 5`, `--a_b 5` and `--a-b=5` are the same.
class Flags {
   public:
    /// `about` is the first paragraph of --help.
    Flags(std::string program, std::string about)
        : program_(std::move(program)), about_(std::move(about)) {}

    void add(std::string name, std::int64_t& target, Range range, const std::string& help) {
        const std::string fallback = std::to_string(target);
        add({std::move(name), "N", help + " (" + fallback + ")",
             [&target, range](const std::string& flag, const std::string& text) {
                 target = number(flag, text, range.min, range.max);
             }});
    }
    void add(std::string name, double& target, std::string help) {
        add({std::move(name), "X", std::move(help),
             [&target](const std::string& flag, const std::string& text) {
                 target = number(flag, text, 0.0, 1e6);
             }});
    }
    void add(std::string name, std::string& target, std::string help) {
        add({std::move(name), "TEXT", std::move(help),
             [&target](const std::string&, const std::string& text) { target = text; }});
    }
    void add(std::string name, bool& target, std::string help) {
        add({std::move(name), "", std::move(help),
             [&target](const std::string&, const std::string&) { target = true; }});
    }
    /// The flags whose values may be given without the flag, in this order.
    void add_positional(std::vector<std::string> names) { positional_ = std::move(names); }

    [[nodiscard]] const std::string& program() const { return program_; }

    /// False if --help was asked for. Throws UsageError.
    [[nodiscard]] bool parse(int argc, char** argv) const {
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
                flag.set(flag.name, words[++i]);
            }
        }
        return true;
    }

    /// The text of --help.
    [[nodiscard]] std::string usage() const {
        std::string text = program_ + ": " + about_ + "\n\n";
        for (const Flag& flag : flags_) {
            std::string left = "  " + flag.name + " " + flag.argument;
            left.resize(std::max<std::size_t>(left.size(), 26), ' ');
            text += left + " " + flag.help + "\n";
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

   private:
    struct Flag {
        std::string name;
        std::string argument;
        std::string help;
        std::function<void(const std::string& flag, const std::string& text)> set;
    };

    void add(Flag flag) { flags_.push_back(std::move(flag)); }

    const Flag& find(std::string name) const {
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

    template <class Number>
    static Number number(const std::string& flag, const std::string& text, Number min, Number max) {
        Number value{};
        const char* const end = text.data() + text.size();
        const auto [stop, error] = std::from_chars(text.data(), end, value);
        if (error != std::errc() || stop != end || !(value >= min) || !(value <= max)) {
            throw UsageError(flag + " takes a number from " + text_of(min) + " to " + text_of(max) +
                             ", not '" + text + "'");
        }
        return value;
    }

    /// The shortest form: 0, 0.5, 1e+06.
    template <class Number>
    static std::string text_of(Number value) {
        std::array<char, 32> text{};
        return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
    }

    /// The edit distance: letters that must be added, removed or replaced.
    static std::size_t distance(std::string_view from, std::string_view to) {
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

    std::string program_;
    std::string about_;
    std::vector<Flag> flags_;
    std::vector<std::string> positional_;
};

/// The main function of an example: reads the flags and the environment, and runs `body(context)`.
/// Returns the exit code: 0, 1 after an Error, 2 for a wrong command line.
template <class Body>
int run_main(const Flags& flags, int argc, char** argv, const Body& body) {
    std::setvbuf(stdout, nullptr, _IOLBF, BUFSIZ);  // Line-buffered, also in a pipe.
    regroup::Context context;
    try {
        if (!flags.parse(argc, argv)) {
            std::fputs(flags.usage().c_str(), stdout);
            return 0;
        }
        context = regroup::Context::from_environment();
        body(std::as_const(context));
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

/// For examples that need several ranks.
inline void require_ranks(const regroup::Context& context, std::uint32_t least) {
    if (context.world_size < least) {
        throw UsageError("needs at least " + std::to_string(least) +
                         " ranks; start it with: regroup run --standalone --nproc-per-node=" +
                         std::to_string(least));
    }
}

}  // namespace example
