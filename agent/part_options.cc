// SPDX-License-Identifier: Apache-2.0
#include "agent/part_options.h"

namespace regroup::agent {

RoundStoreOptions round_store_options(const AgentOptions& options, OutputRelay& output) {
    return {options.store_mode, options.fixed_store_port, options.store_dialect,
            [&output](const std::string& line) { output.say(line); }};
}

WorkerGroupOptions group_options(const AgentOptions& options) {
    WorkerGroupOptions group;
    group.job = options.core.job;
    group.node = options.core.offer.name;
    group.host = options.host;
    group.full_host = options.full_host;
    group.role = options.core.offer.role;
    group.workers = options.core.offer.workers;
    group.max_restarts = options.core.policy.restarts_max;
    group.command = options.command;
    group.output = options.output;
    group.on_event = options.on_event;
    return group;
}

NodeWatchOptions watch_options(const AgentOptions& options) {
    // Folders in torchrun's layout have only torchrun's files, for tools that read them.
    const bool keeps_ledger = options.output.layout != OutputLayout::torchrun;
    return {options.core.job,      options.core.offer.name, options.hangs,
            options.output.folder, options.search_path,     keeps_ledger,
            options.torch_pipe};
}

}  // namespace regroup::agent
