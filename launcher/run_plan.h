// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "launcher/run_options.h"
#include "rendezvous/client/control_client.h"

namespace regroup::launcher {

/// Without --rdzv-id, as torchrun's; a job of one node alone has a fresh one.
inline constexpr const char* kUsualJob = "none";

/// Whether this process should serve the rendezvous itself.
enum class Hosting : std::uint8_t {
    never,         ///< The endpoint is another machine's.
    if_port_free,  ///< The endpoint names this host; if the port is taken, another agent serves it.
    always,        ///< Nobody else can: a standalone job, or node 0 of a static one.
};

/// What `regroup run` will do, decided from its flags and this machine.
struct RunPlan {
    agent::AgentConfig agent;
    rendezvous::Endpoint endpoint;  ///< Port 0: a free one, for a standalone job.
    /// Where else a daemon may lead; without `endpoint`.
    std::vector<rendezvous::Endpoint> other_endpoints;
    Hosting hosting = Hosting::never;
    std::string bind_address;  ///< Where a hosted daemon listens; empty for all addresses.
    /// MASTER_ADDR and MASTER_PORT are the endpoint itself, in every round (static back end).
    bool fixed_master = false;
    std::vector<std::string> notes;  ///< What a person should know before it starts.
};

/// Errors: invalid_argument, one line that names the flag.
Result<RunPlan> make_run_plan(const RunOptions& options);

/// One or several, separated by commas; each as `parse_endpoint`. Errors: invalid_argument.
Result<std::vector<rendezvous::Endpoint>> parse_endpoints(
    const std::string& text, std::uint16_t default_port,
    const std::string& flag = "--rdzv-endpoint");

/// "host[:port]" with IPv6 in brackets; an empty text is localhost. Errors: invalid_argument.
Result<rendezvous::Endpoint> parse_endpoint(const std::string& text, std::uint16_t default_port,
                                            const std::string& flag = "--rdzv-endpoint");

}  // namespace regroup::launcher
