// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_options.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstdlib>
#include <set>
#include <sstream>

#include <CLI/CLI.hpp>

namespace regroup::launcher {

namespace {

constexpr double kSecondsMax = 1e9;
constexpr std::size_t kNameBytesMax = 255;
constexpr std::size_t kPrefixBytesMin = 5;  // "--" and three letters.

constexpr const char* kIntroduction =
    "Start a distributed job's workers on this node: rendezvous with the other nodes, give every\n"
    "worker its rank, watch them, restart the job when one fails, and say who failed first.\n"
    "Run the same line on every node.";

constexpr const char* kExamples =
    "\nExamples:\n"
    "  regroup run --nproc-per-node=8 ./train --epochs 5           one node, eight workers\n"
    "  regroup run --nnodes=2:4 --nproc-per-node=8 --max-restarts=3 \\\n"
    "      --rdzv-endpoint=host0:29400 --rdzv-backend=c10d ./train   2 to 4 nodes, elastic\n"
    "  regroup run --nnodes=2 --node-rank=0 --master-addr=host0 \\\n"
    "      --master-port=29500 train.py                             fixed ranks, Python\n"
    "\nEvery flag may be written with dashes or underscores, and has its default in PET_<NAME>\n"
    "(PET_NNODES, PET_MAX_RESTARTS, ...). Exit code: 0 when the job succeeded; the first failing\n"
    "rank's own code (128 + signal) when one failed; 1 when no rank is to blame; 2 for a mistake\n"
    "on the command line; 3 when no rendezvous was reached.";

std::string with_underscores(std::string text) {
    std::replace(text.begin() + 2, text.end(), '-', '_');
    return text;
}

// "--max-restarts" -> "--max-restarts,--max_restarts".
std::string both_spellings(const std::string& flag) {
    const std::string other = with_underscores(flag);
    return other == flag ? flag : flag + "," + other;
}

std::string variable_of(const std::string& flag) {
    std::string name = "PET_" + flag.substr(2);
    for (char& c : name) {
        c = c == '-' ? '_' : static_cast<char>(std::toupper(static_cast<unsigned char>(c)));
    }
    return name;
}

/// Collects flags and the sentence of the first value that does not fit.
class FlagTable {
   public:
    explicit FlagTable(CLI::App& app) : app_(app) {}

    void group(std::string name) { group_ = std::move(name); }

    template <class Assign>
    void value(const std::string& names, const std::string& type, const std::string& default_text,
               const std::string& help, Assign assign) {
        const std::string flag = names.substr(names.find("--"));
        const std::string shorts = names.substr(0, names.find("--"));
        add_known(flag);
        CLI::Option* option = app_.add_option_function<std::string>(
            shorts + both_spellings(flag),
            [this, flag, assign](const std::string& text) {
                const std::string complaint = assign(text);
                if (!complaint.empty() && complaint_.empty()) {
                    complaint_ = flag + from_environment(flag) + " " + complaint;
                }
            },
            help + (default_text.empty() ? "" : " [" + default_text + "]"));
        option->type_name(type)->envname(variable_of(flag))->group(group_);
        option->multi_option_policy(CLI::MultiOptionPolicy::TakeLast);
        with_value_.insert({flag, with_underscores(flag)});
    }

    void toggle(const std::string& names, const std::string& help, bool& out,
                const std::string& variable = "") {
        const std::string flag = names.substr(names.find("--"));
        add_known(flag);
        const std::string shorts = names.substr(0, names.find("--"));
        app_.add_flag(shorts + both_spellings(flag), out, help)->group(group_);
        const std::string name = variable.empty() ? variable_of(flag) : variable;
        if (const char* text = std::getenv(name.c_str())) {
            int number = 0;
            const char* end = text + std::char_traits<char>::length(text);
            const auto [stop, error] = std::from_chars(text, end, number);
            if (error != std::errc() || stop != end) {
                complain(name + "='" + text + "' must be 0 or 1");
            }
            out = number != 0;
        }
    }

    void complain(const std::string& sentence) {
        if (complaint_.empty()) {
            complaint_ = sentence;
        }
    }

    [[nodiscard]] const std::string& complaint() const { return complaint_; }
    [[nodiscard]] const std::vector<std::string>& known() const { return known_; }
    [[nodiscard]] bool takes_value(const std::string& flag) const {
        return with_value_.contains(flag);
    }

   private:
    void add_known(const std::string& flag) {
        known_.push_back(flag);
        if (const std::string other = with_underscores(flag); other != flag) {
            known_.push_back(other);
        }
    }

    // " (from PET_NNODES)" if the value did not come from the command line.
    [[nodiscard]] std::string from_environment(const std::string& flag) const {
        return given_.contains(flag) || given_.contains(with_underscores(flag)) ||
                       std::getenv(variable_of(flag).c_str()) == nullptr
                   ? ""
                   : " (from " + variable_of(flag) + ")";
    }

   public:
    /// The flags that stand on the command line itself.
    void given(std::span<const std::string> arguments) {
        for (const std::string& argument : arguments) {
            given_.insert(argument.substr(0, argument.find('=')));
        }
    }

   private:
    CLI::App& app_;
    std::string group_;
    std::string complaint_;
    std::vector<std::string> known_;
    std::set<std::string> given_;
    std::set<std::string> with_value_;
};

// CLI11 would take the next word, the program perhaps, for the value of `--rdzv-id=`.
std::vector<std::string> with_empty_values(std::span<const std::string> arguments,
                                           const FlagTable& flags) {
    std::vector<std::string> words(arguments.begin(), arguments.end());
    for (std::size_t i = 0; i < words.size(); ++i) {
        if (!words[i].starts_with("-") || words[i] == "--") {
            break;  // What follows is the program's.
        }
        const std::size_t equals = words[i].find('=');
        if (!flags.takes_value(words[i].substr(0, equals))) {
            continue;
        }
        if (equals == std::string::npos) {
            ++i;  // Its value.
        } else if (equals + 1 == words[i].size()) {
            words[i].pop_back();
            words.insert(words.begin() + static_cast<std::ptrdiff_t>(++i), "");
        }
    }
    return words;
}

template <class Number>
std::optional<Number> parse_number(const std::string& text) {
    Number number{};
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, number);
    return error == std::errc() && stop == end ? std::optional(number) : std::nullopt;
}

std::string quoted(const std::string& text) {
    return "'" + text + "'";
}

template <class Number>
auto number_into(Number& out, Number min, Number max) {
    return [&out, min, max](const std::string& text) -> std::string {
        const auto number = parse_number<std::int64_t>(text);
        if (!number || *number < static_cast<std::int64_t>(min) ||
            *number > static_cast<std::int64_t>(max)) {
            return "must be a whole number from " + std::to_string(min) + " to " +
                   std::to_string(max) + ", not " + quoted(text);
        }
        out = static_cast<Number>(*number);
        return "";
    };
}

auto seconds_into(Duration& out) {
    return [&out](const std::string& text) -> std::string {
        char* end = nullptr;
        const double seconds = std::strtod(text.c_str(), &end);
        if (text.empty() || *end != '\0' || !std::isfinite(seconds) || seconds < 0 ||
            seconds > kSecondsMax) {
            return "must be a number of seconds, zero or more, not " + quoted(text);
        }
        out = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
        return "";
    };
}

auto text_into(std::string& out) {
    return [&out](const std::string& text) -> std::string {
        out = text;
        return "";
    };
}

// What the other nodes are told must fit the control protocol's names.
auto name_into(std::string& out) {
    return [&out](const std::string& text) -> std::string {
        out = text;
        const bool printable = std::none_of(text.begin(), text.end(), [](char c) {
            return static_cast<unsigned char>(c) < ' ' || c == '\x7F';
        });
        return text.size() <= kNameBytesMax && printable
                   ? ""
                   : "must be at most " + std::to_string(kNameBytesMax) +
                         " bytes, without control characters";
    };
}

std::string parse_nodes(RunOptions& options, const std::string& text) {
    const std::size_t colon = text.find(':');
    const auto min = parse_number<std::uint32_t>(text.substr(0, colon));
    const auto max =
        colon == std::string::npos ? min : parse_number<std::uint32_t>(text.substr(colon + 1));
    if (!min || !max || *min == 0) {
        return "must be N or MIN:MAX with whole numbers from 1, not " + quoted(text);
    }
    if (*min > *max) {
        return text + ": the minimum, " + std::to_string(*min) + ", exceeds the maximum, " +
               std::to_string(*max);
    }
    options.nodes_min = *min;
    options.nodes_max = *max;
    return "";
}

std::string parse_workers(RunOptions& options, const std::string& text) {
    const auto number = parse_number<std::uint32_t>(text);
    const bool word = text == "cpu" || text == "gpu" || text == "auto";
    if (!word && (!number || *number == 0 || *number > 65536)) {
        return "must be a number of workers from 1, cpu, gpu or auto, not " + quoted(text);
    }
    options.workers = text;
    return "";
}

std::string parse_backend(RunOptions& options, const std::string& text) {
    static const std::vector<std::string> kKnown{"static", "c10d", "etcd", "etcd-v2", "regroup"};
    if (std::find(kKnown.begin(), kKnown.end(), text) == kKnown.end()) {
        return "must be static, c10d, etcd, etcd-v2 or regroup, not " + quoted(text);
    }
    options.rdzv_backend = text;
    return "";
}

void declare(FlagTable& flags, RunOptions& options) {
    flags.group("Job");
    flags.value("--nnodes", "N|MIN:MAX", "1:1", "Nodes in the job; with MIN:MAX it is elastic",
                [&](const std::string& text) { return parse_nodes(options, text); });
    flags.value("--nproc-per-node", "N|cpu|gpu|auto", "1",
                "Workers on this node: a number, one per CPU, one per GPU, or auto (GPUs if there "
                "are any, else CPUs)",
                [&](const std::string& text) { return parse_workers(options, text); });
    flags.value("--max-restarts", "N", "0",
                "Worker failures that the job survives, counted for the whole job",
                number_into<std::uint32_t>(options.max_restarts, 0, 1000000));
    flags.value("--role", "NAME", "default", "Role of this node's workers",
                [&](const std::string& text) {
                    return text.empty() ? "must not be empty" : name_into(options.role)(text);
                });

    flags.group("Rendezvous");
    flags.toggle("--standalone", "A job of this node alone, with a rendezvous of its own",
                 options.standalone);
    flags.value("--rdzv-backend", "NAME", "static",
                "static: ranks by --node-rank, master at the endpoint. c10d, regroup: ranks by "
                "agreement at the endpoint. etcd, etcd-v2: as c10d; no etcd is asked",
                [&](const std::string& text) { return parse_backend(options, text); });
    flags.value("--rdzv-endpoint", "HOST[:PORT]", "port 29400",
                "Where the rendezvous daemon is; on the node that it names it is started",
                text_into(options.rdzv_endpoint));
    flags.value("--rdzv-id", "ID", "none", "Name of the job, the same on all its nodes",
                name_into(options.rdzv_id));
    flags.value("--node-rank", "N", "0", "Rank of this node (static back end)",
                [&](const std::string& text) {
                    options.node_rank = 0;
                    return number_into<std::uint32_t>(*options.node_rank, 0, 1000000)(text);
                });
    flags.value("--master-addr", "ADDR", "127.0.0.1",
                "Node 0's address (static back end without endpoint)",
                text_into(options.master_addr));
    flags.value("--master-port", "PORT", "29500", "Node 0's port, likewise",
                [&](const std::string& text) {
                    options.master_port = 0;
                    return number_into<std::uint16_t>(*options.master_port, 1, 65535)(text);
                });
    flags.value("--local-addr", "ADDR", "",
                "Address by which other nodes reach this one [as the daemon sees it]",
                name_into(options.local_addr));

    flags.group("Time, in seconds");
    flags.value("--join-timeout", "S", "600", "Give up when no round was formed by then",
                seconds_into(options.join_timeout));
    flags.value("--last-call", "S", "3",
                "Wait for more nodes once MIN of MIN:MAX are there (first round only)",
                seconds_into(options.last_call));
    flags.value("--heartbeat-timeout", "S", "3", "A node silent for this long is lost",
                seconds_into(options.heartbeat_timeout));
    flags.value("--shutdown-timeout", "S", "30", "From SIGTERM to SIGKILL, on every path",
                seconds_into(options.shutdown_timeout));
    flags.value("--grow-after", "S", "5",
                "Stop a running round to let a new node in once it is this old",
                seconds_into(options.grow_after));
    flags.value("--monitor-interval", "S", "",
                "Accepted for compatibility; workers are watched by event, without polling",
                [&](const std::string& text) -> std::string {
                    Duration interval{};
                    const std::string complaint = seconds_into(interval)(text);
                    options.monitor_interval = std::chrono::duration<double>(interval).count();
                    return complaint.empty() && interval == Duration::zero() ? "must be above 0"
                                                                             : complaint;
                });

    flags.group("Output");
    flags.value("--log-dir", "DIR", "./regroup-runs",
                "One file for each rank and round goes under DIR/ID; /dev/null for none",
                [&](const std::string& text) -> std::string {
                    options.log_dir = text;
                    return text.empty() ? "must not be empty" : "";
                });

    flags.group("Program");
    flags.toggle("-m,--module", "PROGRAM is a Python module (python -u -m PROGRAM)",
                 options.module);
    flags.toggle("--no-python", "Run PROGRAM itself even if it is a .py file", options.no_python);
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

class HelpFormatter final : public CLI::Formatter {
   public:
    HelpFormatter() { column_width(32); }
    std::string make_usage(const CLI::App* /*app*/, std::string /*name*/) const override {
        return "\nUsage: regroup run [FLAGS] PROGRAM [ARGUMENTS...]\n";
    }
    // One spelling and the type; that the other spelling and PET_<NAME> exist is said once, below.
    std::string make_option_name(const CLI::Option* option, bool /*positional*/) const override {
        const std::vector<std::string>& shorts = option->get_snames();
        const std::vector<std::string>& longs = option->get_lnames();
        return (shorts.empty() ? "" : "-" + shorts.front() + ", ") + "--" + longs.front();
    }
    std::string make_option_opts(const CLI::Option* option) const override {
        return option->get_type_name().empty() ? "" : " " + option->get_type_name();
    }
    std::string make_option_desc(const CLI::Option* option) const override {
        return wrapped(option->get_description(), 64);
    }

   private:
    static std::string wrapped(const std::string& text, std::size_t width) {
        std::istringstream words(text);
        std::string result;
        std::size_t column = 0;
        for (std::string word; words >> word;) {
            if (column > 0 && column + 1 + word.size() > width) {
                result += "\n";
                column = 0;
            }
            result += (column > 0 ? " " : "") + word;
            column += (column > 0 ? 1 : 0) + word.size();
        }
        return result;
    }
};

Failure usage(const std::string& sentence) {
    return Failure(Errc::invalid_argument, sentence);
}

}  // namespace

std::optional<std::string> nearest(const std::string& word,
                                   std::span<const std::string> candidates) {
    std::optional<std::string> best;
    std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
    for (const std::string& candidate : candidates) {
        // The beginning of a flag is as near as one letter, however long the rest is.
        const bool begins = word.size() >= kPrefixBytesMin && candidate.starts_with(word);
        const std::size_t distance = begins ? 1 : edit_distance(word, candidate);
        if (distance < best_distance) {
            best_distance = distance;
            best = candidate;
        }
    }
    return best;
}

Result<std::variant<RunOptions, ShowText>> parse_run_options(
    std::span<const std::string> arguments) {
    RunOptions options;
    CLI::App app(kIntroduction, "regroup run");
    app.footer(kExamples);
    app.prefix_command();
    app.formatter(std::make_shared<HelpFormatter>());
    FlagTable flags(app);
    flags.given(arguments);
    declare(flags, options);

    // CLI11 takes its arguments from the back.
    std::vector<std::string> reversed = with_empty_values(arguments, flags);
    std::reverse(reversed.begin(), reversed.end());
    try {
        app.parse(reversed);
    } catch (const CLI::CallForHelp&) {
        return std::variant<RunOptions, ShowText>(ShowText{app.help()});
    } catch (const CLI::ParseError& error) {
        return usage(error.what());
    }
    if (!flags.complaint().empty()) {
        return usage(flags.complaint());
    }
    std::vector<std::string> rest = app.remaining();
    if (!rest.empty() && rest.front() == "--") {
        rest.erase(rest.begin());
    } else if (!rest.empty() && rest.front().starts_with("-")) {
        const std::string flag = rest.front().substr(0, rest.front().find('='));
        const auto near = nearest(flag, flags.known());
        return usage("unknown flag " + flag + (near ? "; did you mean " + *near + "?" : "") +
                     " (regroup run --help lists them all)");
    }
    if (rest.empty()) {
        return usage("no program given (usage: regroup run [FLAGS] PROGRAM [ARGUMENTS...])");
    }
    options.program = rest.front();
    options.arguments.assign(rest.begin() + 1, rest.end());
    if (options.module && options.no_python) {
        return usage("--module and --no-python exclude each other");
    }
    return std::variant<RunOptions, ShowText>(std::move(options));
}

}  // namespace regroup::launcher
