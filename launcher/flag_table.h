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

/// A text to print on stdout instead of running the command, such as the help.
struct ShowText {
    std::string text;
};

/// One flag with its help. The help leaves out empty fields.
struct Flag {
    std::string names;          ///< "--nnodes", or with its letter "-r,--redirects".
    std::string type;           ///< Type of the value: "N|MIN:MAX". Empty for a switch.
    std::string default_value;  ///< The default as the help shows it.
    std::string help;           ///< One or two sentences, without the last full stop.
    std::string example = {};   ///< A complete example: "--nnodes=2:4".
    /// The environment variable that gives the default, "-" for none. Empty: PET_<NAME> in a table
    /// with torchrun's flags, else none.
    std::string variable = {};
    /// Not a flag of torchrun. An abbreviation that fits a flag of torchrun too means that one.
    bool own = false;
};

/// The candidate most similar to `word`, if one is similar enough.
[[nodiscard]] std::optional<std::string> nearest(const std::string& word,
                                                 std::span<const std::string> candidates);

/// The flags of a command. The rules are those of Python's argparse, on which scripts for torchrun
/// rely:
///
/// - A flag has a spelling with dashes and one with underscores. An unambiguous beginning suffices;
///   the two spellings count as two names.
/// - Forms: `--flag value`, `--flag=value`, `-r value`, `-r3`.
/// - Words after the program's name (see `first_word_is_program`), or after `--`, are no flags.
/// - The last of several values wins. The environment gives defaults.
class FlagTable {
   public:
    /// Stores a value. Returns "", or the error as the rest of a sentence ("must be ...").
    using Take = std::function<std::string(const std::string& value)>;

    /// `command`: the words before the flags, such as "regroup run". `has_torchrun`: the table has
    /// torchrun's flags.
    explicit FlagTable(std::string command, bool has_torchrun = false)
        : command_(std::move(command)), has_torchrun_(has_torchrun) {
        entries_.reserve(128);  // The largest command has some 110.
    }

    [[nodiscard]] const std::string& command() const noexcept { return command_; }

    /// Sets the heading in the help for the flags that are declared next.
    void group(std::string heading) { group_ = std::move(heading); }
    void value(Flag flag, Take take);
    void toggle(Flag flag, bool& out);

    /// Reads the flags and the environment. Returns the other words, or the help for --help.
    /// Errors: invalid_argument, one line that names the flag or variable.
    Result<std::variant<std::vector<std::string>, ShowText>> parse(
        std::span<const std::string> arguments);

    /// After parse(): true if the flag, in either spelling, was on the command line.
    [[nodiscard]] bool was_given(const std::string& flag) const { return given_.contains(flag); }
    /// The same, or its environment variable was set.
    [[nodiscard]] bool was_set(const std::string& flag) const {
        return given_.contains(flag) || from_environment_.contains(flag);
    }

    /// After parse(): a line for each variable PET_... of the environment that no flag has, and
    /// whose name is similar to that of one that has.
    [[nodiscard]] std::vector<std::string> misspelled_variables() const;

    /// A flag of the command line in full spelling: "--tee" as the word "--tee=3".
    struct Given {
        std::string flag;
        std::string word;
    };
    /// After parse(): the flags of the command line, in its order, repeated ones included.
    [[nodiscard]] const std::vector<Given>& given() const { return given_in_order_; }

    /// The first word that is no flag is a program, whose words behind it are no flags.
    bool first_word_is_program = false;

    /// Parts of the help: the usage line, the text before it, and the text after the flags.
    std::string usage;
    std::string introduction;
    std::string footer;

    /// All long names with dashes, in order of declaration.
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

    void add(Entry entry);
    [[nodiscard]] std::string help() const;
    /// The entry for a word without its value. Errors: unknown or ambiguous flag.
    Result<const Entry*> find(const std::string& word) const;
    [[nodiscard]] Failure complaint(const std::string& sentence) const;
    Result<void> take(const Entry& entry, const std::string& value, const std::string& source);
    Result<void> read_environment();
    /// Reads the flag at `arguments[at]`. Returns the index of the next word.
    Result<std::size_t> take_flag(std::span<const std::string> arguments, std::size_t at);

    std::string command_;
    bool has_torchrun_;
    std::string group_;
    std::vector<Entry> entries_;
    std::set<std::string> given_;
    std::vector<Given> given_in_order_;
    std::set<std::string> from_environment_;
    bool help_asked_ = false;
    std::optional<Failure> complaint_;  ///< The first invalid value.
};

}  // namespace regroup::launcher
