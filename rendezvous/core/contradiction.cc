// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/core/contradiction.h"

namespace regroup::rendezvous {

namespace {

std::string count_or_any(const std::optional<std::uint32_t>& count) {
    return count ? std::to_string(*count) : "any number";
}

std::string reactions(const std::map<int, Reaction>& on_exit) {
    std::string text;
    for (const auto& [code, reaction] : on_exit) {
        text += (text.empty() ? "" : ",") + std::to_string(code) + "=" +
                std::string(to_string(reaction));
    }
    return text.empty() ? "empty" : text;
}

std::optional<Contradiction> contradiction_of_budgets(const JobPolicy& job,
                                                      const JobPolicy& newcomer) {
    struct Count {
        const char* flag;
        std::string here;
        std::string there;
    };
    const Budgets& there = job.budgets;
    const Budgets& here = newcomer.budgets;
    const Count counts[] = {
        {"--max-restarts", std::to_string(newcomer.restarts_max), std::to_string(job.restarts_max)},
        {"--standbys", std::to_string(newcomer.standbys_max), std::to_string(job.standbys_max)},
        {"--on-exit", reactions(newcomer.on_exit), reactions(job.on_exit)},
        {"--max-hangs", count_or_any(here.hangs), count_or_any(there.hangs)},
        {"--max-node-losses", count_or_any(here.losses), count_or_any(there.losses)},
        {"--refill-steps", std::to_string(here.refill_steps), std::to_string(there.refill_steps)},
        {"--no-progress", std::to_string(here.no_progress_max),
         std::to_string(there.no_progress_max)},
        {"--max-node-failures", std::to_string(here.node_failures_max),
         std::to_string(there.node_failures_max)},
    };
    for (const Count& count : counts) {
        if (count.here != count.there) {
            return Contradiction{count.flag, count.here, count.there};
        }
    }
    return std::nullopt;
}

}  // namespace

std::string nodes_range(const JobPolicy& policy) {
    return std::to_string(policy.nodes_min) + ":" + std::to_string(policy.nodes_max);
}

std::optional<Contradiction> contradiction(const JobPolicy& job, const JobPolicy& newcomer) {
    if (job.nodes_min != newcomer.nodes_min || job.nodes_max != newcomer.nodes_max) {
        return Contradiction{"--nnodes", nodes_range(newcomer), nodes_range(job)};
    }
    if (job.program != newcomer.program) {
        return Contradiction{"the program", newcomer.program, job.program};
    }
    if (auto found = contradiction_of_budgets(job, newcomer)) {
        return found;
    }
    if (job.rank_order != newcomer.rank_order) {
        return Contradiction{"--rank-order", std::string(to_string(newcomer.rank_order)),
                             std::string(to_string(job.rank_order))};
    }
    struct Limit {
        const char* flag;
        Duration here;
        Duration there;
    };
    for (const Limit& limit :
         {Limit{"--last-call", newcomer.last_call, job.last_call},
          Limit{"--heartbeat-timeout", newcomer.heartbeat_timeout, job.heartbeat_timeout},
          Limit{"--shutdown-timeout", newcomer.shutdown_timeout, job.shutdown_timeout},
          Limit{"--grow-after", newcomer.grow_after, job.grow_after},
          Limit{"--regroup-window", newcomer.regroup_window, job.regroup_window},
          Limit{"--prepare-timeout", newcomer.prepare_timeout, job.prepare_timeout},
          Limit{"--finish-timeout", newcomer.finish_timeout, job.finish_timeout},
          Limit{"--restart-delay", newcomer.budgets.delay, job.budgets.delay},
          Limit{"--node-failures-window", newcomer.budgets.node_failures_window,
                job.budgets.node_failures_window}}) {
        if (limit.here != limit.there) {
            return Contradiction{limit.flag, format_duration(limit.here),
                                 format_duration(limit.there)};
        }
    }
    return std::nullopt;
}

}  // namespace regroup::rendezvous
