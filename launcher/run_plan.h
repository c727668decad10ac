// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "agent/core/agent_core.h"
#include "agent/store/round_store.h"
#include "launcher/run_options.h"
#include "rendezvous/client/control_client.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher {

/// The job id without --rdzv-id, as in torchrun. A job of one node alone gets a new id instead.
inline constexpr const char* kUsualJob = "none";
/// Of a daemon, where no port is given.
inline constexpr std::uint16_t kRendezvousPort = 29400;

/// Whether this process should serve the rendezvous itself.
enum class Hosting : std::uint8_t {
    never,         ///< The endpoint is on another machine.
    if_port_free,  ///< The endpoint names this host; if the port is taken, another agent serves it.
    always,        ///< No other process can: a standalone job, or node 0 of a static one.
};

/// The plan of `regroup run`, made from its flags and this machine.
struct RunPlan {
    agent::AgentConfig agent;
    rendezvous::Endpoint endpoint;  ///< Port 0: any free port, for a standalone job.
    /// Other daemons that may lead; without `endpoint`.
    std::vector<rendezvous::Endpoint> other_endpoints;
    std::string endpoint_hint;  ///< What to try if nobody answers there; may be empty.
    Hosting hosting = Hosting::never;
    std::string bind_address;  ///< Address on which a hosted daemon listens; empty: all.
    security::Credentials credentials;
    agent::StoreMode store_mode = agent::StoreMode::local;
    /// MASTER_ADDR and MASTER_PORT are the endpoint itself, in every round (static back end).
    bool fixed_master = false;
    std::vector<std::string> notes;  ///< Notices to print at the start.
};

/// Errors: invalid_argument, one line that names the flag.
Result<RunPlan> make_run_plan(const RunOptions& options);

/// A name for a job without one: the date and the time, and a number that differs between two runs
/// in the same second.
[[nodiscard]] std::string fresh_job_id();

}  // namespace regroup::launcher
