// SPDX-License-Identifier: Apache-2.0
#include "launcher/rendezvous_plan.h"

#include <algorithm>
#include <utility>

#include "launcher/host.h"
#include "launcher/rank_key.h"
#include "launcher/trust.h"

namespace regroup::launcher {

namespace {

constexpr std::uint16_t kMasterPort = 29500;
constexpr const char* kEndpointFlag = "--rdzv-endpoint";

class RendezvousPlanner {
   public:
    RendezvousPlanner(const RunFlags& flags, RunPlan& plan)
        : is_torchrun_(flags.front == Front::torchrun),
          flags_(flags.rendezvous),
          plan_(plan),
          daemon_(plan.daemon),
          policy_(plan.agent.core.policy),
          offer_(plan.agent.core.offer) {}

    Result<void> decide() {
        const bool is_static = flags_.backend == "static";
        const bool alone =
            is_static && flags_.endpoint.empty() && !flags_.master_port && policy_.nodes_max == 1;
        if (flags_.standalone && policy_.nodes_min > 1) {
            return invalid_argument("--standalone is a job of one node; --nnodes asks for " +
                                    std::to_string(policy_.nodes_min) + " at least");
        }
        if (flags_.standalone) {
            policy_.nodes_max = 1;
        }
        if (flags_.standalone || alone) {
            plan_alone();
            return {};
        }
        return is_static ? plan_static() : plan_dynamic();
    }

    // Whether this process would talk to other hosts, and what it can prove to them.
    Result<void> plan_trust() {
        const security::Credentials& credentials = plan_.agent.daemon.credentials;
        const bool is_local = is_loopback_host(daemon_.endpoint.host) &&
                              std::ranges::all_of(daemon_.other_endpoints, [](const auto& other) {
                                  return is_loopback_host(other.host);
                              });
        const bool is_hosted = daemon_.hosting != Hosting::never;
        plan_.agent.store.mode = credentials.insecure                 ? agent::StoreMode::direct
                                 : is_local || policy_.nodes_max == 1 ? agent::StoreMode::local
                                                                      : agent::StoreMode::relay;
        if (is_local && !credentials.insecure && is_hosted && daemon_.bind_address.empty()) {
            daemon_.bind_address =
                daemon_.endpoint.host == "localhost" ? "127.0.0.1" : daemon_.endpoint.host;
        }
        // The daemon of a job of one node serves only this user's processes.
        const bool is_own = policy_.nodes_max == 1 && is_hosted;
        return is_local || is_own || credentials.can_prove() || credentials.insecure
                   ? Result<void>()
                   : no_credentials("the daemon at " + daemon_.endpoint.text());
    }

    // A scheduler's name of a node need not be one of its host, though other nodes may know it.
    void check_head_name() {
        const std::optional<Allocation>& allocation = flags_.allocation;
        if (!allocation || allocation->head_advice.empty()) {
            return;
        }
        if (!allocation->is_head) {
            daemon_.endpoint_hint = "; " + allocation->head_advice;
        } else if (!names_this_host(daemon_.endpoint.host)) {
            note(daemon_.endpoint.host + " does not lead to this host; " + allocation->head_advice);
            const std::vector<std::string> addresses = own_addresses();
            daemon_.endpoint.host = addresses.empty() ? "127.0.0.1" : addresses.front();
        }
    }

    // With fixed ranks, a second node with the same rank cannot wait.
    void note_unused_standbys() {
        if (policy_.standbys_max > 0 && (offer_.alone || daemon_.fixed_master)) {
            note("--standbys " + std::to_string(policy_.standbys_max) + " is not used: " +
                 (daemon_.fixed_master ? "with fixed ranks (--rdzv-backend=static)"
                                       : "in a job of this node alone") +
                 " no other node can wait for a place");
        }
    }

    // The names under which a host file may have this node, and the key that follows.
    Result<void> plan_rank_order() {
        if (offer_.alone || policy_.nodes_max == 1) {
            return {};
        }
        if (offer_.slot) {
            if (policy_.rank_order != rendezvous::RankOrder::automatic) {
                note("--rank-order is not used: --node-rank gives this node its rank");
            }
            return {};
        }
        std::vector<std::string> names = own_addresses();
        names.insert(names.begin(), {offer_.name, short_host_name(), full_host_name()});
        Result<std::string> key =
            rank_key(policy_.rank_order, flags_.rank_file, flags_.allocation, names, plan_.notes);
        if (!key) {
            return key.error();
        }
        offer_.rank_key = *std::move(key);
        return {};
    }

    void plan_address() {
        constexpr std::size_t kOthersMax = 4;
        offer_.address_is_explicit = !offer_.address.empty();
        if (daemon_.fixed_master && offer_.slot == 0U) {
            offer_.address = daemon_.endpoint.host;
            offer_.address_is_explicit = true;
        } else if (!offer_.address_is_explicit && policy_.nodes_max > 1) {
            offer_.other_addresses = own_addresses();
            offer_.other_addresses.resize(std::min(offer_.other_addresses.size(), kOthersMax));
        }
    }

    [[nodiscard]] Result<void> check() const {
        if (Result<void> valid = validate(policy_); !valid) {
            return valid;
        }
        if (offer_.slot && *offer_.slot >= policy_.nodes_max) {
            return invalid_argument(
                "--node-rank " + std::to_string(*offer_.slot) + " is outside --nnodes: with " +
                std::to_string(policy_.nodes_max) + " node(s) the last rank is " +
                std::to_string(policy_.nodes_max - 1));
        }
        if (daemon_.hosting == Hosting::never && daemon_.endpoint.port == 0) {
            return invalid_argument("--rdzv-endpoint " + daemon_.endpoint.text() +
                                    ": port 0 means any free one, which only this host can choose");
        }
        return {};
    }

   private:
    void note(std::string line) { plan_.notes.push_back(std::move(line)); }

    void plan_alone() {
        if (!flags_.endpoint.empty()) {
            note("--standalone has a daemon of its own; --rdzv-endpoint " + flags_.endpoint +
                 " is not used");
        }
        daemon_.endpoint = {"127.0.0.1", 0};
        daemon_.bind_address = "127.0.0.1";
        daemon_.hosting = Hosting::always;
        offer_.alone = true;
        offer_.slot.reset();
        if (std::string& job = plan_.agent.core.job; job.empty()) {
            job = fresh_job_id();
            daemon_.has_fresh_job = true;
        }
    }

    // torchrun ignores these flags silently, so scripts that give both must keep working.
    void note_unused_master() {
        if (!flags_.master_addr.empty() || flags_.master_port) {
            note("the daemon is at " + daemon_.endpoint.text() +
                 "; --master-addr and --master-port are not used");
        }
    }

    Result<void> plan_static() {
        const std::string& master = flags_.master_addr;
        if (flags_.endpoint.empty()) {
            daemon_.endpoint = {master.empty() ? "127.0.0.1" : master,
                                flags_.master_port.value_or(kMasterPort)};
        } else {
            if (flags_.endpoint.find(',') != std::string::npos) {
                return invalid_argument(
                    "--rdzv-endpoint " + flags_.endpoint +
                    ": the static back end has one endpoint, node 0; several daemons need "
                    "--rdzv-backend=c10d");
            }
            Result<rendezvous::Endpoint> endpoint =
                rendezvous::parse_endpoint(flags_.endpoint, kRendezvousPort, kEndpointFlag);
            if (!endpoint) {
                return endpoint.error();
            }
            daemon_.endpoint = *std::move(endpoint);
            note_unused_master();
        }
        if (policy_.nodes_max > 1 && flags_.endpoint.empty() && master.empty()) {
            note(
                "no --master-addr is given: the nodes meet at 127.0.0.1, which is "
                "this machine only");
        }
        offer_.slot = offer_.slot.value_or(0);
        daemon_.fixed_master = true;
        daemon_.hosting = offer_.slot == 0U ? Hosting::always : Hosting::never;
        return {};
    }

    Result<void> plan_dynamic() {
        Result<std::vector<rendezvous::Endpoint>> endpoints =
            rendezvous::parse_endpoints(flags_.endpoint, kRendezvousPort, kEndpointFlag);
        if (!endpoints) {
            return endpoints.error();
        }
        daemon_.endpoint = endpoints->front();
        daemon_.other_endpoints.assign(endpoints->begin() + 1, endpoints->end());
        if (offer_.slot && is_torchrun_) {
            note("--node-rank " + std::to_string(*offer_.slot) +
                 " is not used with --rdzv-backend " + flags_.backend);
            offer_.slot.reset();
        }
        note_unused_master();
        if (flags_.backend.starts_with("etcd")) {
            note("--rdzv-backend " + flags_.backend + ": no etcd is asked; the endpoint " +
                 daemon_.endpoint.text() + " must be a regroup daemon");
        }
        if (!daemon_.other_endpoints.empty()) {
            if (flags_.is_host.value_or(false)) {
                return invalid_argument(
                    "--rdzv-conf is_host: with several endpoints this node does not know "
                    "which is its own; start the daemons by regroup serve");
            }
            const Result<void> checked = check_others();
            return checked ? check_localhost() : checked;
        }
        const bool own = flags_.is_host ? *flags_.is_host : names_this_host(daemon_.endpoint.host);
        daemon_.hosting = !own             ? Hosting::never
                          : flags_.is_host ? Hosting::always
                                           : Hosting::if_port_free;
        return check_localhost();
    }

    // Each node would take localhost for itself, and wait there for the others.
    Result<void> check_localhost() {
        if (policy_.nodes_max == 1 || daemon_.endpoint.host != "localhost") {
            return {};
        }
        const std::string sentence =
            (flags_.endpoint.empty() ? "no --rdzv-endpoint means localhost"
                                     : "--rdzv-endpoint " + flags_.endpoint) +
            ", and on each of " + std::to_string(policy_.nodes_max) +
            " nodes that is the node itself";
        if (is_torchrun_) {
            note(sentence);
            return {};
        }
        return invalid_argument(sentence +
                                "; name a host that all of them reach (127.0.0.1 if all are on "
                                "this machine)");
    }

    // All nodes must mean the same daemons.
    [[nodiscard]] Result<void> check_others() const {
        for (const rendezvous::Endpoint& endpoint : daemon_.other_endpoints) {
            if (endpoint.port == 0 || (policy_.nodes_max > 1 && endpoint.host == "localhost")) {
                return invalid_argument(
                    "--rdzv-endpoint " + flags_.endpoint + ": " + endpoint.text() +
                    (endpoint.port == 0 ? " has port 0, which means any free one"
                                        : " is another machine on each node") +
                    "; with several endpoints name hosts and ports that all nodes reach");
            }
        }
        return {};
    }

    const bool is_torchrun_;
    const RendezvousFlags& flags_;
    RunPlan& plan_;
    DaemonPlan& daemon_;
    rendezvous::JobPolicy& policy_;
    rendezvous::Offer& offer_;
};

}  // namespace

Result<void> plan_rendezvous(const RunFlags& flags, RunPlan& plan) {
    RendezvousPlanner planner(flags, plan);
    if (Result<void> decided = planner.decide(); !decided) {
        return decided;
    }
    Result<security::Credentials> credentials = read_credentials(flags.trust);
    if (!credentials) {
        return credentials.error();
    }
    plan.agent.daemon.credentials = *std::move(credentials);
    if (Result<void> trusted = planner.plan_trust(); !trusted) {
        return trusted;
    }
    planner.check_head_name();
    planner.note_unused_standbys();
    if (Result<void> ordered = planner.plan_rank_order(); !ordered) {
        return ordered;
    }
    planner.plan_address();
    return planner.check();
}

}  // namespace regroup::launcher
