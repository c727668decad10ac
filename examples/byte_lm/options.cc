// SPDX-License-Identifier: Apache-2.0
#include "options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>
#include <string_view>
#include <variant>

namespace byte_lm {
namespace {

struct Integer {
    std::int64_t Options::* member;
    std::int64_t min;
    std::int64_t max;
};
using Target = std::variant<Integer, double Options::*, std::string Options::*,
                            std::vector<std::string> Options::*, bool Options::*>;

struct Flag {
    std::string_view name;
    std::string_view argument;
    Target target;
    std::string_view help;
};

constexpr std::int64_t kMany = 1'000'000'000;

const std::array<Flag, 15> kFlags{{
    {"--data", "FILE..", &Options::data, "text to learn, one file or several (required)"},
    {"--steps", "N", Integer{&Options::steps, 1, kMany}, "steps to train in all"},
    {"--global-batch", "N", Integer{&Options::global_batch, 1, 1 << 20},
     "samples per step, over all ranks together"},
    {"--learning-rate", "X", &Options::learning_rate, "of SGD with momentum 0.9"},
    {"--context", "N", Integer{&Options::context, 1, 1024}, "bytes that the model sees"},
    {"--embedding", "N", Integer{&Options::embedding, 1, 4096}, "numbers that stand for a byte"},
    {"--hidden", "N", Integer{&Options::hidden, 1, 65536}, "width of the hidden layer"},
    {"--seed", "N", Integer{&Options::seed, 0, kMany}, "of the weights and of the samples' order"},
    {"--backend", "NAME", &Options::backend, "of the process group, for buffers in host memory"},
    {"--checkpoint", "FILE", &Options::checkpoint, "resume from it if it exists; save to it"},
    {"--checkpoint-every", "N", Integer{&Options::checkpoint_every, 1, kMany},
     "steps between checkpoints"},
    {"--save-parameters", "FILE", &Options::save_parameters, "where to put the trained model"},
    {"--log-every", "N", Integer{&Options::log_every, 1, kMany}, "steps between progress lines"},
    {"--step-delay-ms", "N", Integer{&Options::step_delay_ms, 0, 60'000},
     "pause after each step, to watch at leisure"},
    {"--help", "", &Options::help, "print this"},
}};

// The shortest form: 0, 0.5, 1000.
template <class Number>
std::string text_of(Number value) {
    std::array<char, 32> text{};
    return {text.data(), std::to_chars(text.data(), text.data() + text.size(), value).ptr};
}

template <class Number>
Number parse_number(const Flag& flag, const std::string& text, Number min, Number max) {
    Number value{};
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (error != std::errc() || end != text.data() + text.size() || !(value >= min) ||
        !(value <= max)) {
        throw UsageError(std::string(flag.name) + " takes a number from " + text_of(min) + " to " +
                         text_of(max) + ", not '" + text + "'");
    }
    return value;
}

// The edit distance: letters that must be added, removed or replaced.
std::size_t edit_distance(std::string_view from, std::string_view to) {
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

const Flag& find_flag(const std::string& name) {
    const auto found = std::ranges::find(kFlags, name, &Flag::name);
    if (found != kFlags.end()) {
        return *found;
    }
    if (!name.starts_with("-")) {
        throw UsageError("'" + name + "' belongs to no flag; --help lists them");
    }
    const Flag& nearest = *std::ranges::min_element(
        kFlags, {}, [&name](const Flag& flag) { return edit_distance(name, flag.name); });
    constexpr std::size_t kDistanceMax = 2;  // a larger distance is no typing mistake
    throw UsageError("unknown flag " + name +
                     (edit_distance(name, nearest.name) <= kDistanceMax
                          ? "; did you mean " + std::string(nearest.name) + "?"
                          : "; --help lists them"));
}

void set(Options& options, const Flag& flag, const std::string& value) {
    if (const auto* integer = std::get_if<Integer>(&flag.target)) {
        options.*integer->member = parse_number(flag, value, integer->min, integer->max);
    } else if (const auto* number = std::get_if<double Options::*>(&flag.target)) {
        options.*(*number) = parse_number(flag, value, 0.0, 1000.0);
    } else if (const auto* text = std::get_if<std::string Options::*>(&flag.target)) {
        options.*(*text) = value;
    } else if (const auto* texts = std::get_if<std::vector<std::string> Options::*>(&flag.target)) {
        (options.*(*texts)).push_back(value);
    }
}

}  // namespace

Options parse_options(int argc, char** argv) {
    const std::vector<std::string> arguments(argv + 1, argv + argc);
    Options options;
    for (std::size_t i = 0; i < arguments.size();) {
        const std::string& argument = arguments[i++];
        const std::size_t equals = argument.find('=');
        const Flag& flag = find_flag(argument.substr(0, equals));
        if (const auto* on = std::get_if<bool Options::*>(&flag.target)) {
            if (equals != std::string::npos) {
                throw UsageError(std::string(flag.name) + " takes no value");
            }
            options.*(*on) = true;
            continue;
        }
        if (equals != std::string::npos) {
            set(options, flag, argument.substr(equals + 1));
            continue;
        }
        const bool many = std::holds_alternative<std::vector<std::string> Options::*>(flag.target);
        const std::size_t first = i;
        while (i < arguments.size() && !arguments[i].starts_with("--") && (many || i == first)) {
            set(options, flag, arguments[i++]);
        }
        if (i == first) {
            throw UsageError(std::string(flag.name) + " needs a value");
        }
    }
    if (options.data.empty() && !options.help) {
        throw UsageError("--data FILE.. is missing: there is nothing to learn");
    }
    return options;
}

std::string usage() {
    std::string text =
        "byte_lm: trains a small language model on the bytes of text files, data-parallel over\n"
        "however many ranks it is launched with, and goes on from its checkpoint when "
        "restarted.\n\n";
    for (const Flag& flag : kFlags) {
        std::string left = "  " + std::string(flag.name) + " " + std::string(flag.argument);
        left.resize(std::max<std::size_t>(left.size(), 26), ' ');
        text += left + " " + std::string(flag.help) + "\n";
    }
    return text;
}

}  // namespace byte_lm
