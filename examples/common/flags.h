// SPDX-License-Identifier: Apache-2.0
// The command line of an example. A mistake is reported in one line.
#pragma once

#include <regroup/context.h>

#include <cstdint>
#include <functional>
#include <stdexcept>
#include <string>
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

    void add(std::string name, std::int64_t& target, Range range, const std::string& help);
    void add(std::string name, double& target, const std::string& help);
    void add(std::string name, std::string& target, std::string help);
    void add(std::string name, bool& target, std::string help);
    /// Takes one value or several.
    void add(std::string name, std::vector<std::string>& target, std::string help);
    /// The flag `--backend`.
    void add_backend(std::string& backend);
    /// The flags whose values may be given without the flag, in this order.
    void add_positional(std::vector<std::string> names) { positional_ = std::move(names); }

    [[nodiscard]] const std::string& program() const { return program_; }

    /// False if --help was asked for. Throws UsageError.
    [[nodiscard]] bool parse(int argc, char** argv) const;

    /// The text of --help.
    [[nodiscard]] std::string usage() const;

   private:
    struct Flag {
        std::string name;
        std::string argument;
        std::string help;
        std::function<void(const std::string& flag, const std::string& text)> set;
        bool takes_many = false;
    };

    [[nodiscard]] const Flag& find(std::string name) const;

    std::string program_;
    std::string about_;
    std::vector<Flag> flags_;
    std::vector<std::string> positional_;
};

/// The main function of an example: reads the flags and the environment, and runs `body(context)`.
/// Returns the exit code: 0, 1 after an Error, 2 for a wrong command line.
int run_main(const Flags& flags, int argc, char** argv,
             const std::function<void(const regroup::Context&)>& body);

/// One command of a program that has several: `program name ...`.
struct Command {
    std::string name;
    std::string about;
    /// Like main(); argv[0] is the name of the command.
    int (*run)(int argc, char** argv);
};

/// The main function of a program with `commands`. Returns the exit code.
int run_command(const std::string& program, const std::vector<Command>& commands, int argc,
                char** argv);

/// For examples that need several ranks.
void require_ranks(const regroup::Context& context, std::uint32_t least);

}  // namespace example
