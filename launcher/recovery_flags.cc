// SPDX-License-Identifier: Apache-2.0

#include "launcher/flag_values.h"
#include "launcher/run_flag_table.h"
#include "rendezvous/base/names.h"

namespace regroup::launcher {

namespace {

using rendezvous::Reaction;

constexpr std::uint32_t kCountMax = 1000000;

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

void declare_budgets(FlagTable& flags, rendezvous::Budgets& budgets) {
    flags.value({"--max-hangs", "N|restarts", "restarts",
                 "Hangs that the job survives. restarts: a hang is charged to --max-restarts",
                 "--max-hangs=2", "", true},
                count_into(budgets.hangs, "restarts"));
    flags.value(
        {"--max-node-losses", "N|any", "any", "Lost nodes that the job survives. any: no limit",
         "--max-node-losses=10", "", true},
        count_into(budgets.losses, "any"));
    flags.value({"--refill-steps", "N", "0",
                 "After N committed steps without a loss the counters of --max-restarts, "
                 "--max-hangs and --max-node-losses start again at zero. Only programs with an "
                 "ElasticLoop report steps. 0: never",
                 "--refill-steps=1000", "", true},
                number_into<std::uint64_t>(budgets.refill_steps, 0, 1000000000000));
    flags.value({"--no-progress", "N", "5",
                 "End the job with exit code 4 after N rounds in a row that failed without a new "
                 "committed step. Without an ElasticLoop, only short rounds that ended with an "
                 "exit code for retry count. 0: never",
                 "--no-progress=10", "", true},
                number_into<std::uint32_t>(budgets.no_progress_max, 0, kCountMax));
    flags.value({"--restart-delay", "SECONDS", "0.1",
                 "Back-off before the second restart in a row without progress. It doubles for "
                 "each further one, up to 30 s",
                 "--restart-delay=1", "", true},
                seconds_into(budgets.delay));
    flags.value({"--max-node-failures", "N", "3",
                 "A node that caused N failed rounds within --node-failures-window is kept out for "
                 "that long, if enough other nodes are there. 0: never",
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
        for (const std::string_view pair : split(text, ',')) {
            const std::size_t equals = pair.find('=');
            const auto code = parse_number<int>(pair.substr(0, equals));
            const auto reaction =
                equals == pair.npos ? std::nullopt : value_named<Reaction>(pair.substr(equals + 1));
            if (!code || *code < 1 || *code > 255 || !reaction) {
                return "must be CODE=REACTION,..., with codes from 1 to 255 and fail, restart, "
                       "retry or replace-node, or none; not " +
                       in_quotes(pair);
            }
            if (!given.emplace(*code, *reaction).second) {
                return "names code " + std::to_string(*code) + " twice in " + in_quotes(text);
            }
        }
        given.merge(out);
        out = std::move(given);
        return "";
    };
}

void declare_recovery(FlagTable& flags, RunFlags& out) {
    rendezvous::JobPolicy& policy = out.agent.core.policy;
    policy.on_exit = default_reactions(out.front);
    out.agent.health.level = health::Level::basic;
    flags.group("Recovery");
    flags.value(
        {"--standbys", "N", "0",
         "Spare nodes beyond MAX of --nnodes. They wait with their workers already started, "
         "ready to replace a lost node. Only in programs with an ElasticLoop",
         "--standbys=1", "", true},
        number_into<std::uint32_t>(policy.standbys_max, 0, kCountMax));
    flags.value({"--on-exit", "CODE=REACTION,...",
                 policy.on_exit.empty() ? "none" : "2, 64, 78, 126, 127=fail, 75=retry, 76=...",
                 "Reaction to the exit code of a worker. fail: the job ends. restart: a new round, "
                 "charged to --max-restarts; the default of all other codes. retry: a new round, "
                 "charged to nothing. replace-node: the node is quarantined. The list is added to "
                 "the defaults; none removes the defaults",
                 "--on-exit=3=fail,80=retry", "", true},
                reactions_into(policy.on_exit));
    declare_budgets(flags, policy.budgets);
    flags.value({"--regroup-window", "SECONDS", "0.2",
                 "How long the daemon waits, after a loss, to learn which other nodes are alive. "
                 "Failures of one cause then lead to one new round",
                 "--regroup-window=1", "", true},
                seconds_into(policy.regroup_window));
    flags.value({"--prepare-timeout", "SECONDS", "120",
                 "When a node joins or leaves, workers in an ElasticLoop change rounds at the next "
                 "step boundary. Longest time to reach it. Then the round is stopped as after a "
                 "failure, and the step is done again",
                 "--prepare-timeout=600", "", true},
                positive_seconds_into(policy.prepare_timeout));
    flags.value({"--finish-timeout", "SECONDS", "0",
                 "Longest time from the first rank that finishes with exit code 0 to the last one. "
                 "Then the job ends with exit code 124. 0: no limit; the launcher and regroup "
                 "status only say which ranks have finished and which go on",
                 "--finish-timeout=600", "", true},
                seconds_into(policy.finish_timeout));
    flags.value({"--health", "off|basic|full", "basic",
                 "Check this node before it joins, and after a failure of its workers. A node with "
                 "a broken part does not take part, and ends with exit code 76. basic: read what "
                 "the system and the GPU driver know; milliseconds. full: also compute on all CPUs "
                 "and copy memory, for about 1.5 s",
                 "--health=full", "", true},
                [&level = out.agent.health.level](const std::string& text) {
                    std::string word;
                    std::string wrong = word_into(word, {"off", "basic", "full"})(text);
                    level = word == "off"    ? health::Level::off
                            : word == "full" ? health::Level::full
                                             : health::Level::basic;
                    return wrong;
                });
}

}  // namespace regroup::launcher
