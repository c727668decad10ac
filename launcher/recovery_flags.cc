// SPDX-License-Identifier: Apache-2.0
#include "launcher/recovery_flags.h"

#include <array>
#include <sstream>

#include "launcher/flag_values.h"

namespace regroup::launcher {

namespace {

using rendezvous::Reaction;

constexpr std::uint32_t kCountMax = 1000000;

std::optional<Reaction> parse_reaction(const std::string& text) {
    constexpr std::array kAll{Reaction::restart, Reaction::fail, Reaction::retry,
                              Reaction::replace_node};
    for (const Reaction reaction : kAll) {
        if (text == to_string(reaction)) {
            return reaction;
        }
    }
    return std::nullopt;
}

FlagTable::Take count_into(std::optional<std::uint32_t>& out, const std::string& word) {
    return [&out, word](const std::string& text) -> std::string {
        if (text == word) {
            out.reset();
            return "";
        }
        std::uint32_t number = 0;
        if (!number_into<std::uint32_t>(number, 0, kCountMax)(text).empty()) {
            return "must be " + word + " or a whole number from 0 to " + std::to_string(kCountMax) +
                   ", not " + in_quotes(text);
        }
        out = number;
        return "";
    };
}

FlagTable::Take positive_seconds_into(Duration& out) {
    return [&out](const std::string& text) -> std::string {
        const std::string wrong = seconds_into(out)(text);
        return wrong.empty() && out == Duration::zero() ? "must be above 0" : wrong;
    };
}

void declare_budgets(FlagTable& flags, RunOptions& options) {
    rendezvous::Budgets& budgets = options.budgets;
    flags.value({"--max-hangs", "N|restarts", "restarts",
                 "Hangs that the job survives. restarts: a hang is charged to --max-restarts",
                 "--max-hangs=2", "", true},
                count_into(budgets.hangs, "restarts"));
    flags.value(
        {"--max-node-losses", "N|any", "any", "Lost nodes that the job survives. any: no limit",
         "--max-node-losses=10", "", true},
        count_into(budgets.losses, "any"));
    flags.value({"--refill-steps", "N", "0",
                 "After so many committed steps, --max-restarts, --max-hangs and --max-node-losses "
                 "are full again. Only programs with an ElasticLoop report steps. 0: never",
                 "--refill-steps=1000", "", true},
                number_into<std::uint64_t>(budgets.refill_steps, 0, 1000000000000));
    flags.value({"--no-progress", "N", "5",
                 "End the job with exit code 4 after so many rounds in a row that failed without a "
                 "new committed step. Without an ElasticLoop, only short rounds that ended with an "
                 "exit code for retry count. 0: never",
                 "--no-progress=10", "", true},
                number_into<std::uint32_t>(budgets.no_progress_max, 0, kCountMax));
    flags.value({"--restart-delay", "SECONDS", "0.1",
                 "Back-off before the second restart in a row without progress. It doubles for "
                 "each further one, up to 30 s",
                 "--restart-delay=1", "", true},
                seconds_into(budgets.delay));
    flags.value({"--max-node-failures", "N", "3",
                 "A node that caused so many failures within --node-failures-window is "
                 "quarantined, if enough other nodes are there. 0: never",
                 "--max-node-failures=5", "", true},
                number_into<std::uint32_t>(budgets.node_failures_max, 0, kCountMax));
    flags.value({"--node-failures-window", "SECONDS", "600",
                 "Time within which --max-node-failures counts failures, and time for which a node "
                 "stays quarantined",
                 "--node-failures-window=3600", "", true},
                positive_seconds_into(budgets.node_failures_window));
}

}  // namespace

std::map<int, Reaction> default_reactions(Front front) {
    if (front == Front::torchrun) {
        return {};
    }
    return {{2, Reaction::fail},                                 // By convention, a usage error.
            {64, Reaction::fail},                                // EX_USAGE of sysexits.h.
            {75, Reaction::retry},                               // EX_TEMPFAIL.
            {76, Reaction::replace_node}, {78, Reaction::fail},  // EX_CONFIG.
            {126, Reaction::fail},   // From a shell: the program cannot be executed.
            {127, Reaction::fail}};  // From a shell: there is no such program.
}

FlagTable::Take reactions_into(std::map<int, Reaction>& out) {
    return [&out](const std::string& text) -> std::string {
        if (text == "none") {
            out.clear();
            return "";
        }
        std::map<int, Reaction> given;
        std::istringstream pairs(text);
        for (std::string pair; std::getline(pairs, pair, ',');) {
            const std::size_t equals = pair.find('=');
            const auto code = parse_number<int>(pair.substr(0, equals));
            const auto reaction =
                equals == pair.npos ? std::nullopt : parse_reaction(pair.substr(equals + 1));
            if (!code || *code < 1 || *code > 255 || !reaction) {
                return "must be CODE=REACTION,..., with codes from 1 to 255 and fail, restart, "
                       "retry or replace-node, or none; not " +
                       in_quotes(pair);
            }
            if (!given.emplace(*code, *reaction).second) {
                return "names code " + std::to_string(*code) + " twice in " + in_quotes(text);
            }
        }
        if (text.empty() || text.back() == ',') {
            return "must be CODE=REACTION,... or none, not " + in_quotes(text);
        }
        given.merge(out);
        out = std::move(given);
        return "";
    };
}

void declare_recovery(FlagTable& flags, RunOptions& options) {
    options.on_exit = default_reactions(options.front);
    flags.group("Recovery");
    flags.value({"--standbys", "N", "0",
                 "Nodes beyond MAX of --nnodes that wait with their workers already started, and "
                 "take the ranks of a lost node at once. Only in programs with an ElasticLoop",
                 "--standbys=1", "", true},
                number_into<std::uint32_t>(options.standbys, 0, kCountMax));
    flags.value({"--on-exit", "CODE=REACTION,...",
                 options.on_exit.empty() ? "none" : "2, 64, 78, 126, 127=fail, 75=retry, 76=...",
                 "Reaction to the exit code of a worker. fail: the job ends. restart: a new round, "
                 "charged to --max-restarts; the default of all other codes. retry: a new round, "
                 "charged to nothing. replace-node: the node is quarantined. The list is added to "
                 "the defaults; none removes the defaults",
                 "--on-exit=3=fail,80=retry", "", true},
                reactions_into(options.on_exit));
    declare_budgets(flags, options);
    flags.value({"--regroup-window", "SECONDS", "0.2",
                 "How long to wait, after a loss, for nodes that have not answered. Failures of "
                 "one cause then lead to one new round",
                 "--regroup-window=1", "", true},
                seconds_into(options.regroup_window));
    flags.value({"--prepare-timeout", "SECONDS", "120",
                 "When a node joins or leaves, workers in an ElasticLoop change rounds at the next "
                 "step boundary. If they have not reached it after so long, the round is stopped "
                 "as after a failure, and the step is done again",
                 "--prepare-timeout=600", "", true},
                positive_seconds_into(options.prepare_timeout));
    flags.value({"--finish-timeout", "SECONDS", "0",
                 "End the job with exit code 124 when so long after the first rank has finished "
                 "with exit code 0 others still run. 0: the launcher and regroup status only say "
                 "which ranks have finished and which go on",
                 "--finish-timeout=600", "", true},
                seconds_into(options.finish_timeout));
    flags.value({"--health", "off|basic|full", "basic",
                 "Check this node before it joins, and after a failure of its workers. A node with "
                 "a broken part does not take part, and ends with exit code 76. basic: read what "
                 "the system and the GPU driver know; milliseconds. full: also compute on all CPUs "
                 "and copy memory, for about 1.5 s",
                 "--health=full", "", true},
                word_into(options.health, {"off", "basic", "full"}));
}

}  // namespace regroup::launcher
