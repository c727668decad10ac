// SPDX-License-Identifier: Apache-2.0
// The command lines of examples.
#pragma once

#include <algorithm>
#include <charconv>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <numeric>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

/// The command line is wrong. what() says in one line how.
struct UsageError : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// A table of flags, each with the variable that it sets. "--steps 5" and "--steps=5" are the same.
class Flags {
   public:
    explicit Flags(std::string summary) : summary_(std::move(summary)) {}

    Flags& add(const char* name, std::int64_t& value, std::int64_t min, std::int64_t max,
               const char* help) {
        return add_flag(name, "N", help, [name, min, max, &value](const std::string& text) {
            value = number(name, text, min, max);
        });
    }
    Flags& add(const char* name, double& value, double min, double max, const char* help) {
        return add_flag(name, "X", help, [name, min, max, &value](const std::string& text) {
            value = number(name, text, min, max);
        });
    }
    Flags& add(const char* name, std::string& value, const char* argument, const char* help) {
        return add_flag(name, argument, help, [&value](const std::string& text) { value = text; });
    }
    /// One of a few words.
    Flags& add(const char* name, std::string& value, std::initializer_list<const char*> choices,
               const char* help) {
        std::string all;
        for (const char* choice : choices) {
            all += (all.empty() ? "" : "|") + std::string(choice);
        }
        const std::vector<std::string> allowed(choices.begin(), choices.end());
        return add_flag(name, all, help, [=, &value](const std::string& text) {
            if (std::ranges::find(allowed, text) == allowed.end()) {
                throw UsageError(std::string(name) + " takes " + all + ", not '" + text + "'");
            }
            value = text;
        });
    }
    /// A switch, without an argument.
    Flags& add(const char* name, bool& value, const char* help) {
        return add_flag(name, "", help, [&value](const std::string&) { value = true; });
    }

    /// Throws UsageError.
    void parse(int argc, char** argv) const {
        const std::vector<std::string> arguments(argv + 1, argv + argc);
        for (std::size_t i = 0; i < arguments.size();) {
            const std::string& argument = arguments[i++];
            const std::size_t equals = argument.find('=');
            const Flag& flag = find(argument.substr(0, equals));
            if (flag.argument.empty()) {
                if (equals != std::string::npos) {
                    throw UsageError(std::string(flag.name) + " takes no value");
                }
                flag.set("");
            } else if (equals != std::string::npos) {
                flag.set(argument.substr(equals + 1));
            } else if (i < arguments.size() && !arguments[i].starts_with("--")) {
                flag.set(arguments[i++]);
            } else {
                throw UsageError(std::string(flag.name) + " needs a value");
            }
        }
    }

    /// What --help prints.
    [[nodiscard]] std::string usage() const {
        std::string text = summary_ + "\n\n";
        for (const Flag& flag : flags_) {
            std::string left = "  " + flag.name + " " + flag.argument;
            left.resize(std::max<std::size_t>(left.size(), 28), ' ');
            text += left + " " + flag.help + "\n";
        }
        return text;
    }

   private:
    struct Flag {
        std::string name;
        std::string argument;
        std::string help;
        std::function<void(const std::string&)> set;
    };

    Flags& add_flag(std::string name, std::string argument, std::string help,
                    std::function<void(const std::string&)> set) {
        flags_.push_back({std::move(name), std::move(argument), std::move(help), std::move(set)});
        return *this;
    }

    template <class Number>
    static Number number(const char* name, const std::string& text, Number min, Number max) {
        Number value{};
        const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
        const bool is_number = error == std::errc() && end == text.data() + text.size();
        if (!is_number || !(value >= min) || !(value <= max)) {
            throw UsageError(std::string(name) + " takes a number from " + shown(min) + " to " +
                             shown(max) + ", not '" + text + "'");
        }
        return value;
    }
    template <class Number>
    static std::string shown(Number value) {
        char text[32];
        return {text, std::to_chars(text, text + sizeof text, value).ptr};
    }

    const Flag& find(const std::string& name) const {
        const auto found = std::ranges::find(flags_, name, &Flag::name);
        if (found != flags_.end()) {
            return *found;
        }
        if (!name.starts_with("-")) {
            throw UsageError("'" + name + "' belongs to no flag; --help lists them");
        }
        const Flag& nearest = *std::ranges::min_element(
            flags_, {}, [&name](const Flag& flag) { return edit_distance(name, flag.name); });
        throw UsageError("unknown flag " + name + "; did you mean " + nearest.name + "?");
    }

    // How many letters must be added, removed or replaced to turn one name into the other.
    static std::size_t edit_distance(std::string_view from, std::string_view to) {
        std::vector<std::size_t> row(to.size() + 1);
        std::iota(row.begin(), row.end(), std::size_t{0});
        for (std::size_t i = 1; i <= from.size(); ++i) {
            std::size_t diagonal = row[0];
            row[0] = i;
            for (std::size_t j = 1; j <= to.size(); ++j) {
                const std::size_t replaced = diagonal + (from[i - 1] == to[j - 1] ? 0 : 1);
                diagonal = row[j];
                row[j] = std::min({replaced, row[j] + 1, row[j - 1] + 1});
            }
        }
        return row.back();
    }

    std::string summary_;
    std::vector<Flag> flags_;
};
