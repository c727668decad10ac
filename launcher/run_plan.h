// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "agent/agent.h"
#include "launcher/event_log_options.h"
#include "launcher/run_flags.h"
#include "launcher/state.h"
#include "rendezvous/client/endpoint.h"

namespace regroup::launcher {

/// The job id without --rdzv-id, as in torchrun. A job of one node alone gets a new id instead.
inline constexpr const char* kUsualJob = "none";
/// Of a daemon, where no port is given.
inline constexpr std::uint16_t kRendezvousPort = 29400;

/// Whether this process should run the daemon itself.
enum class Hosting : std::uint8_t {
    never,         ///< The endpoint is on another machine.
    if_port_free,  ///< The endpoint names this host; if the port is taken, another agent serves it.
    always,        ///< No other process can: a standalone job, or node 0 of a static one.
};

/// The daemon of the job, and whether it is a part of this process.
struct DaemonPlan {
    Hosting hosting = Hosting::never;
    rendezvous::Endpoint endpoint;  ///< Port 0: any free port, for a standalone job.
    /// Other daemons that may lead; without `endpoint`.
    std::vector<rendezvous::Endpoint> other_endpoints;
    std::string endpoint_hint;  ///< Advice if nobody answers there; may be empty.
    std::string bind_address;   ///< Address on which a hosted daemon listens; empty: all.
    std::string other_name;     ///< Another name of the host, by which browsers may call it.
    /// MASTER_ADDR and MASTER_PORT are the endpoint itself, in every round (static back end).
    bool fixed_master = false;
    StateOptions state;
    bool has_fresh_job = false;  ///< The job has no name: the same command line begins another one.
};

/// The plan of `regroup run`, made from its flags and this machine.
struct RunPlan {
    /// Complete, but for the endpoints and the calls into the process that runs it.
    agent::AgentOptions agent;
    DaemonPlan daemon;
    bool as_torchrun = false;  ///< With torchrun's exit codes and reports.
    std::string entry_point;   ///< The name of the program in torchrun's summary.
    std::vector<int> signals;  ///< Those that end the run on this node.
    std::optional<std::uint16_t> probe_port;
    EventLogOptions event_log;
    /// The names in console events (--event-log-handler); nothing: there are none.
    struct ConsoleEvents {
        std::string entry_point;
        std::string backend;
    };
    std::optional<ConsoleEvents> console_events;
    /// A folder for output that the user has not asked for. Empty: there is none.
    std::filesystem::path temporary_folder;
    std::vector<std::string> notes;  ///< Notices to print at the start.
};

/// Makes the folders for output. Errors: invalid_argument, one line that names the flag.
Result<RunPlan> make_run_plan(RunFlags flags);

/// A name for a job without one: the date and the time, and a number that differs between two runs
/// in the same second.
[[nodiscard]] std::string fresh_job_id();

}  // namespace regroup::launcher
