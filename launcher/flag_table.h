// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "rendezvous/base/result.h"

namespace regroup::launcher {

/// What the command line asked for instead of the command itself; for stdout.
struct ShowText {
    std::string text;
};

/// One flag as a person meets it. What is empty is left out of the help.
struct Flag {
    std::string names;          ///< "--nnodes", or with its letter "-r,--redirects".
    std::string type;           ///< Of the value: "N|MIN:MAX". Empty for a switch.
    std::string default_value;  ///< As shown.
    std::string help;           ///< One or two sentences, without the last full stop.
    std::string example;        ///< A whole flag: "--nnodes=2:4".
    /// The environment variable that gives the default; PET_<NAME> if it is empty, "-" for none.
    std::string variable = {};
    /// Not one of torchrun's: gives way when an abbreviation fits one of those too.
    bool own = false;
};

/// The candidate that `word` was probably meant to be, if any is near enough.
[[nodiscard]] std::optional<std::string> nearest(const std::string& word,
                                                 std::span<const std::string> candidates);

/// The flags of a command, with the rules of Python's argparse, which scripts written for torchrun
/// rely on: dash and underscore spellings; `--flag value`, `--flag=value`, `-r value`, `-r3`;
/// unambiguous beginnings, where the two spellings of one flag are two; no flag after the program's
/// name, nor after `--`; the last of several values wins; the environment gives defaults.
class FlagTable {
   public:
    /// Takes a value in; returns what is wrong with it ("must be ..."), or "".
    using Take = std::function<std::string(const std::string& value)>;

    /// `command` is what is typed before the flags.
    explicit FlagTable(std::string command) : command_(std::move(command)) {}

    /// Flags declared from here on stand under this heading.
    void group(std::string heading) { group_ = std::move(heading); }
    void value(Flag flag, Take take);
    void toggle(Flag flag, bool& out);

    /// Reads flags up to the program's name, and their variables. Returns the program and its
    /// arguments, or the help if that was asked for. Errors: invalid_argument, one line that names
    /// the flag or variable.
    Result<std::variant<std::vector<std::string>, ShowText>> parse(
        std::span<const std::string> arguments);
    /// The same for a command that starts no program: flags may stand on either side of the other
    /// words, which are returned.
    Result<std::variant<std::vector<std::string>, ShowText>> parse_anywhere(
        std::span<const std::string> arguments);

    /// True after parse() if the flag, in either spelling, stood on the command line.
    [[nodiscard]] bool was_given(const std::string& flag) const { return given_.contains(flag); }

    /// What `--help` shows between usage line and flags, and after the flags.
    std::string usage;
    std::string introduction;
    std::string footer;

    /// All long spellings with dashes, in order of declaration.
    [[nodiscard]] std::vector<std::string> names() const;

   private:
    struct Entry {
        Flag flag;
        std::string group;
        std::string name;    ///< "--nnodes"
        std::string letter;  ///< "-r", or empty.
        Take take;
        bool* toggle = nullptr;
    };

    Result<std::variant<std::vector<std::string>, ShowText>> parse(
        std::span<const std::string> arguments, bool anywhere);
    void add(Entry entry);
    [[nodiscard]] std::string help() const;
    /// The entry for a word without its value. Errors: unknown, ambiguous.
    Result<const Entry*> find(const std::string& word) const;
    [[nodiscard]] Failure complaint(const std::string& sentence) const;
    Result<void> take(const Entry& entry, const std::string& value, const std::string& source);
    Result<void> read_environment();
    /// Takes the flag at `arguments[at]`; returns where the next word is.
    Result<std::size_t> take_flag(std::span<const std::string> arguments, std::size_t at);

    std::string command_;
    std::string group_;
    std::vector<Entry> entries_;
    std::set<std::string> given_;
    bool help_asked_ = false;
    std::optional<Failure> complaint_;  ///< The first value that does not fit.
};

}  // namespace regroup::launcher
