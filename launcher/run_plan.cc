// SPDX-License-Identifier: Apache-2.0
#include "launcher/run_plan.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <unistd.h>

#include "launcher/host.h"
#include "launcher/trust.h"
#include "rendezvous/security/key.h"

namespace regroup::launcher {

namespace {

constexpr std::uint16_t kMasterPort = 29500;

std::string hex(std::uint32_t number) {
    char text[9];
    std::snprintf(text, sizeof text, "%08x", number);
    return text;
}

std::uint32_t random_number() {
    return static_cast<std::uint32_t>(security::random_number());
}

// Equal for equal commands, and short. Arguments may hold secrets, so no peer gets them.
std::string digest_of_command(const RunOptions& options) {
    std::string command = "the command of a node's workers";
    for (const std::string& word : {std::string(options.module ? "-m" : ""), options.program}) {
        command += '\0' + word;
    }
    for (const std::string& word : options.arguments) {
        command += '\0' + word;
    }
    return security::Key::from_secret(command)->hex().substr(0, 32);
}

bool is_static(const RunOptions& options) {
    return options.rdzv_backend == "static";
}

void plan_standalone(const RunOptions& options, RunPlan& plan) {
    plan.endpoint = {"127.0.0.1", 0};
    plan.bind_address = "127.0.0.1";
    plan.hosting = Hosting::always;
    plan.agent.offer.alone = true;
    plan.agent.job = options.rdzv_id.empty() ? fresh_job_id() : options.rdzv_id;
}

void note_unused_conf(const RunOptions& options, RunPlan& plan) {
    std::string keys;
    for (const std::string& key : options.unused_conf) {
        keys += (keys.empty() ? "" : ", ") + key;
    }
    if (!keys.empty()) {
        plan.notes.push_back("--rdzv-conf: not used here: " + keys);
    }
}

// torchrun ignores these flags silently, so scripts that give both must keep working.
void note_unused_master(const RunOptions& options, RunPlan& plan) {
    if (!options.master_addr.empty() || options.master_port) {
        plan.notes.push_back("the rendezvous is at " + plan.endpoint.text() +
                             "; --master-addr and --master-port are not used");
    }
}

Result<void> plan_static(const RunOptions& options, RunPlan& plan) {
    const std::string fallback =
        options.master_addr.empty() ? std::string("127.0.0.1") : options.master_addr;
    if (options.rdzv_endpoint.empty()) {
        plan.endpoint = {fallback, options.master_port.value_or(kMasterPort)};
    } else {
        if (options.rdzv_endpoint.find(',') != std::string::npos) {
            return invalid_argument(
                "--rdzv-endpoint " + options.rdzv_endpoint +
                ": the static back end has one endpoint, node 0; several daemons need "
                "--rdzv-backend=c10d");
        }
        Result<rendezvous::Endpoint> endpoint =
            rendezvous::parse_endpoint(options.rdzv_endpoint, kRendezvousPort, "--rdzv-endpoint");
        if (!endpoint) {
            return endpoint.error();
        }
        plan.endpoint = *endpoint;
        note_unused_master(options, plan);
    }
    const std::uint32_t rank = options.node_rank.value_or(0);
    if (options.nodes_max > 1 && options.rdzv_endpoint.empty() && options.master_addr.empty()) {
        plan.notes.push_back(
            "no --master-addr is given: the nodes meet at 127.0.0.1, which is "
            "this machine only");
    }
    plan.agent.offer.slot = rank;
    plan.fixed_master = true;
    plan.hosting = rank == 0 ? Hosting::always : Hosting::never;
    return {};
}

// With fixed ranks, a second node with the same rank cannot wait.
void note_unused_standbys(const RunOptions& options, RunPlan& plan) {
    if (options.standbys > 0 && (plan.agent.offer.alone || plan.fixed_master)) {
        plan.notes.push_back("--standbys " + std::to_string(options.standbys) + " is not used: " +
                             (plan.fixed_master ? "with fixed ranks (--rdzv-backend=static)"
                                                : "in a job of this node alone") +
                             " no other node can wait for a place");
    }
}

// A scheduler's name of a node need not be one of its host, though other nodes may know it.
void check_head_name(const RunOptions& options, RunPlan& plan) {
    const std::optional<Allocation>& allocation = options.allocation;
    if (!allocation || allocation->head_advice.empty()) {
        return;
    }
    if (!allocation->is_head) {
        plan.endpoint_hint = "; " + allocation->head_advice;
    } else if (!names_this_host(plan.endpoint.host)) {
        plan.notes.push_back(plan.endpoint.host + " does not lead to this host; " +
                             allocation->head_advice);
        const std::vector<std::string> addresses = own_addresses();
        plan.endpoint.host = addresses.empty() ? "127.0.0.1" : addresses.front();
    }
}

// The names under which a host file may have this node, and the key that follows.
Result<void> plan_rank_order(const RunOptions& options, RunPlan& plan) {
    rendezvous::Offer& offer = plan.agent.offer;
    if (offer.alone || plan.agent.policy.nodes_max == 1) {
        return {};
    }
    if (offer.slot) {
        if (options.rank_order.order != rendezvous::RankOrder::automatic) {
            plan.notes.push_back("--rank-order is not used: --node-rank gives this node its rank");
        }
        return {};
    }
    std::vector<std::string> names = own_addresses();
    names.insert(names.begin(), {offer.name, short_host_name(), full_host_name()});
    Result<std::string> key = rank_key(options.rank_order, options.allocation, names, plan.notes);
    if (!key) {
        return key.error();
    }
    offer.rank_key = *std::move(key);
    return {};
}

// Each node would take localhost for itself, and wait there for the others.
Result<void> check_localhost(const RunOptions& options, RunPlan& plan) {
    if (options.nodes_max == 1 || plan.endpoint.host != "localhost") {
        return {};
    }
    const std::string sentence =
        (options.rdzv_endpoint.empty() ? "no --rdzv-endpoint means localhost"
                                       : "--rdzv-endpoint " + options.rdzv_endpoint) +
        ", and on each of " + std::to_string(options.nodes_max) + " nodes that is the node itself";
    if (options.front == Front::torchrun) {
        plan.notes.push_back(sentence);
        return {};
    }
    return invalid_argument(sentence +
                            "; name a host that all of them reach (127.0.0.1 if all are on this "
                            "machine)");
}

// All nodes must mean the same daemons.
Result<void> check_others(const RunOptions& options, const RunPlan& plan) {
    for (const rendezvous::Endpoint& endpoint : plan.other_endpoints) {
        if (endpoint.port == 0 || (options.nodes_max > 1 && endpoint.host == "localhost")) {
            return invalid_argument(
                "--rdzv-endpoint " + options.rdzv_endpoint + ": " + endpoint.text() +
                (endpoint.port == 0 ? " has port 0, which means any free one"
                                    : " is another machine on each node") +
                "; with several endpoints name hosts and ports that all nodes reach");
        }
    }
    return {};
}

Result<void> plan_dynamic(const RunOptions& options, RunPlan& plan) {
    Result<std::vector<rendezvous::Endpoint>> endpoints =
        rendezvous::parse_endpoints(options.rdzv_endpoint, kRendezvousPort, "--rdzv-endpoint");
    if (!endpoints) {
        return endpoints.error();
    }
    plan.endpoint = endpoints->front();
    plan.other_endpoints.assign(endpoints->begin() + 1, endpoints->end());
    if (options.node_rank && options.front == Front::torchrun) {
        plan.notes.push_back("--node-rank " + std::to_string(*options.node_rank) +
                             " is not used with --rdzv-backend " + options.rdzv_backend);
    } else if (options.node_rank) {
        plan.agent.offer.slot = options.node_rank;
    }
    note_unused_master(options, plan);
    if (options.rdzv_backend.starts_with("etcd")) {
        plan.notes.push_back("--rdzv-backend " + options.rdzv_backend +
                             ": no etcd is asked; the endpoint " + plan.endpoint.text() +
                             " must be a regroup daemon");
    }
    if (!plan.other_endpoints.empty()) {
        if (options.is_host.value_or(false)) {
            return invalid_argument(
                "--rdzv-conf is_host: with several endpoints this node does not know "
                "which is its own; start the daemons by regroup serve");
        }
        const Result<void> checked = check_others(options, plan);
        return checked ? check_localhost(options, plan) : checked;
    }
    const bool own = options.is_host ? *options.is_host : names_this_host(plan.endpoint.host);
    plan.hosting = !own              ? Hosting::never
                   : options.is_host ? Hosting::always
                                     : Hosting::if_port_free;
    return check_localhost(options, plan);
}

// Whether this process would talk to other hosts, and what it can prove to them.
Result<void> plan_trust(const RunOptions& options, RunPlan& plan) {
    Result<security::Credentials> credentials = read_credentials(options.trust);
    if (!credentials) {
        return credentials.error();
    }
    plan.credentials = std::move(*credentials);
    std::vector<rendezvous::Endpoint> endpoints = plan.other_endpoints;
    endpoints.push_back(plan.endpoint);
    const bool is_local = std::all_of(endpoints.begin(), endpoints.end(), [](const auto& endpoint) {
        return is_loopback_host(endpoint.host);
    });
    plan.store_mode = plan.credentials.insecure                      ? agent::StoreMode::direct
                      : is_local || plan.agent.policy.nodes_max == 1 ? agent::StoreMode::local
                                                                     : agent::StoreMode::relay;
    if (is_local && !plan.credentials.insecure && plan.hosting != Hosting::never &&
        plan.bind_address.empty()) {
        plan.bind_address = plan.endpoint.host == "localhost" ? "127.0.0.1" : plan.endpoint.host;
    }
    if (is_local || plan.credentials.can_prove() || plan.credentials.insecure) {
        return {};
    }
    // A job of this node alone, whose daemon is here: only this user's processes are served.
    if (plan.agent.policy.nodes_max == 1 && plan.hosting != Hosting::never) {
        return {};
    }
    return no_credentials("the rendezvous at " + plan.endpoint.text());
}

// A stream or filter for a local rank that does not exist would be ignored silently.
Result<void> check_local_ranks(const RunOptions& options, std::uint32_t workers) {
    const auto check = [&](const char* flag, std::uint32_t local_rank) -> Result<void> {
        if (local_rank < workers) {
            return {};
        }
        return invalid_argument(std::string(flag) + " names local rank " +
                                std::to_string(local_rank) + "; this node has " +
                                std::to_string(workers) + " worker(s), the last is " +
                                std::to_string(workers - 1));
    };
    Result<void> result;
    const auto check_all = [&](const char* flag, const auto& ranks) {
        for (const auto& rank : ranks) {
            if (result) {
                result = check(flag, rank);
            }
        }
    };
    const auto keys = [](const agent::StreamSpec& spec) {
        std::vector<std::uint32_t> ranks;
        for (const auto& [rank, streams] : spec.by_local_rank) {
            ranks.push_back(rank);
        }
        return ranks;
    };
    if (options.front != Front::torchrun) {
        check_all("--redirects", keys(options.redirects));
        check_all("--tee", keys(options.tee));
        check_all("--local-ranks-filter",
                  options.local_ranks_filter.value_or(std::set<std::uint32_t>()));
    }
    return result;
}

rendezvous::JobPolicy policy_of(const RunOptions& options) {
    rendezvous::JobPolicy policy;
    policy.nodes_min = options.nodes_min;
    policy.nodes_max = options.nodes_max;
    policy.restarts_max = options.max_restarts;
    policy.last_call = options.last_call;
    policy.heartbeat_timeout = options.heartbeat_timeout;
    policy.shutdown_timeout = options.shutdown_timeout;
    policy.grow_after = options.grow_after;
    policy.regroup_window = options.regroup_window;
    policy.prepare_timeout = options.prepare_timeout;
    policy.finish_timeout = options.finish_timeout;
    policy.standbys_max = options.standbys;
    policy.on_exit = options.on_exit;
    policy.budgets = options.budgets;
    policy.rank_order = options.rank_order.order;
    policy.program = std::filesystem::path(options.program).filename();
    return policy;
}

}  // namespace

std::string fresh_job_id() {
    const std::time_t now = std::time(nullptr);
    std::tm local{};
    ::localtime_r(&now, &local);
    char text[32];
    std::strftime(text, sizeof text, "%Y%m%d-%H%M%S", &local);
    return std::string(text) + "-" + hex(random_number()).substr(0, 4);
}

Result<RunPlan> make_run_plan(const RunOptions& options) {
    RunPlan plan;
    plan.notes = options.notes;
    const Result<std::uint32_t> workers = count_workers(options.workers, plan.notes);
    if (!workers) {
        return workers.error();
    }
    agent::AgentConfig& agent = plan.agent;
    agent.join_timeout = options.join_timeout;
    agent.policy = policy_of(options);
    agent.offer.workers = *workers;
    agent.offer.role = options.role;
    if (options.allocation) {
        plan.notes.insert(plan.notes.end(), options.allocation->notes.begin(),
                          options.allocation->notes.end());
    }
    const std::string node_name = options.allocation ? options.allocation->node_name : "";
    agent.offer.name = !node_name.empty()           ? node_name
                       : options.local_addr.empty() ? short_host_name()
                                                    : options.local_addr;
    agent.offer.address = options.local_addr;
    agent.offer.address_is_explicit = !options.local_addr.empty();
    agent.job = options.rdzv_id.empty() ? kUsualJob : options.rdzv_id;
    note_unused_conf(options, plan);
    if (const Result<void> checked = check_local_ranks(options, *workers); !checked) {
        return checked.error();
    }
    agent.offer.secret = security::random_text();
    agent.offer.store_key = security::random_text();
    agent.offer.command = digest_of_command(options);
    agent.offer.same_command_only = agent.job == kUsualJob;
    agent.offer.reads_logs = true;
    agent.node = agent.offer.name + "-" + std::to_string(::getpid()) + "-" + hex(random_number());

    const bool alone = is_static(options) && options.rdzv_endpoint.empty() &&
                       !options.master_port && options.nodes_max == 1;
    if (options.standalone && options.nodes_min > 1) {
        return invalid_argument("--standalone is a job of one node; --nnodes asks for " +
                                std::to_string(options.nodes_min) + " at least");
    }
    if (options.standalone) {
        agent.policy.nodes_max = 1;
    }
    if (options.standalone || alone) {
        if (!options.rdzv_endpoint.empty()) {
            plan.notes.push_back("--standalone has a rendezvous of its own; --rdzv-endpoint " +
                                 options.rdzv_endpoint + " is not used");
        }
        plan_standalone(options, plan);
    } else if (const Result<void> planned =
                   is_static(options) ? plan_static(options, plan) : plan_dynamic(options, plan);
               !planned) {
        return planned.error();
    }
    if (const Result<void> trusted = plan_trust(options, plan); !trusted) {
        return trusted.error();
    }
    check_head_name(options, plan);
    note_unused_standbys(options, plan);
    if (const Result<void> ordered = plan_rank_order(options, plan); !ordered) {
        return ordered.error();
    }
    if (plan.fixed_master && agent.offer.slot == 0U) {
        agent.offer.address = plan.endpoint.host;
        agent.offer.address_is_explicit = true;
    } else if (!agent.offer.address_is_explicit && agent.policy.nodes_max > 1) {
        agent.offer.other_addresses = own_addresses();
        agent.offer.other_addresses.resize(
            std::min<std::size_t>(agent.offer.other_addresses.size(), 4));
    }
    if (const Result<void> valid = validate(agent.policy); !valid) {
        return valid.error();
    }
    if (agent.offer.slot && *agent.offer.slot >= agent.policy.nodes_max) {
        return invalid_argument(
            "--node-rank " + std::to_string(*agent.offer.slot) + " is outside --nnodes: with " +
            std::to_string(agent.policy.nodes_max) + " node(s) the last rank is " +
            std::to_string(agent.policy.nodes_max - 1));
    }
    if (plan.hosting == Hosting::never && plan.endpoint.port == 0) {
        return invalid_argument("--rdzv-endpoint " + plan.endpoint.text() +
                                ": port 0 means any free one, which only this host can choose");
    }
    return plan;
}

}  // namespace regroup::launcher
