// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/agent.h"
#include "agent/placement/placement.h"
#include "launcher/cluster/allocation.h"
#include "launcher/event_log_options.h"
#include "launcher/flag_table.h"
#include "launcher/state.h"
#include "rendezvous/base/result.h"
#include "rendezvous/security/credentials.h"

namespace regroup::launcher {

/// The name by which the command was called. The names differ in conventions only.
enum class Front : std::uint8_t {
    run,       ///< `regroup run`.
    torchrun,  ///< `torchrun`: its exit codes and output, and Python by default.
    launch,    ///< `regroup launch`: the same as run, for scripts that take --local-rank=N.
};

/// Where the nodes meet, in the words of the command line.
struct RendezvousFlags {
    /// The scheduler's word. Flags have taken their defaults from it.
    std::optional<Allocation> allocation;
    bool standalone = false;
    std::string backend = "static";
    std::string endpoint;
    std::optional<bool> is_host;
    std::string master_addr;
    std::optional<std::uint16_t> master_port;
    std::string rank_file;  ///< Of --rank-order=file:PATH.
    /// Keys of --rdzv-conf without effect here.
    std::vector<std::string> unused_conf;
};

struct PlacementFlags {
    agent::PlacementRequest request;             ///< Binding and cores.
    std::optional<std::uint32_t> gpus_per_rank;  ///< 0: auto. Nothing: all workers see all GPUs.
    bool report_bindings = false;
};

struct ProgramFlags {
    bool module = false;
    bool no_python = false;
    bool run_path = false;
    bool use_env = false;
    std::string program;
    std::vector<std::string> arguments;
};

/// The wishes of the command line of `regroup run`, the environment and the scheduler. Each flag
/// writes into the options of the part that it is for; where this machine must be asked first, into
/// one of the structs above. make_run_plan() makes the plan of it, and nothing else sees it.
struct RunFlags {
    Front front = Front::run;
    /// The job of `core` is empty without --rdzv-id, the address of its offer without --local-addr.
    agent::AgentOptions agent;
    std::string workers = "1";  ///< A number, cpu, gpu or auto.
    RendezvousFlags rendezvous;
    StateOptions state;
    security::CredentialSources trust;
    std::optional<std::uint16_t> probe_port;
    std::vector<int> signals;  ///< Numbers of the signals that end the run here.
    std::optional<std::string> log_dir;
    bool console_events = false;
    EventLogOptions event_log;
    PlacementFlags placement;
    ProgramFlags program;
    std::vector<std::string> notes;  ///< Notes about the flags, for the user; printed.
};

/// Parses the arguments after `regroup run`, `torchrun` or `regroup launch`. See FlagTable
/// for the rules.
/// Errors: invalid_argument, one line that names the flag or variable.
Result<std::variant<RunFlags, ShowText>> parse_run_flags(Front front,
                                                         std::span<const std::string> arguments);

}  // namespace regroup::launcher
