// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "agent/output/output_layout.h"
#include "launcher/cluster/allocation.h"
#include "launcher/event_log_options.h"
#include "launcher/flag_table.h"
#include "launcher/rank_key.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/journal/etcd_access.h"
#include "rendezvous/security/credentials.h"
#include "rendezvous/store/store_wire.h"

namespace regroup::launcher {

/// The name by which the command was called. The names differ in conventions only.
enum class Front : std::uint8_t {
    run,       ///< `regroup run`.
    torchrun,  ///< `torchrun`: its exit codes and output, and Python by default.
    launch,    ///< `regroup launch`: the same as run, for scripts that take --local-rank=N.
};

/// The flags of `regroup run` as given, one field for each. make_run_plan() looks things up and
/// decides.
struct RunOptions {
    Front front = Front::run;

    // Job.
    std::uint32_t nodes_min = 1;
    std::uint32_t nodes_max = 1;
    std::string workers = "1";  ///< A number, cpu, gpu or auto.
    std::string role = "default";
    std::uint32_t max_restarts = 0;

    // Rendezvous.
    /// The scheduler's word. Flags have taken their defaults from it.
    std::optional<Allocation> allocation;
    bool standalone = false;
    std::string rdzv_backend = "static";
    std::string rdzv_endpoint;
    std::string rdzv_id;  ///< Empty: "none", or a new id for a standalone job.
    /// Keys of --rdzv-conf without effect here.
    std::vector<std::string> unused_conf;
    std::optional<bool> is_host;
    std::optional<std::uint32_t> node_rank;
    std::string master_addr;
    std::optional<std::uint16_t> master_port;
    std::string local_addr;
    RankOrderFlag rank_order;
    std::optional<std::uint16_t> probe_port;
    std::string state = "none";  ///< Of the daemon in this process. See StateOptions.
    journal::EtcdAccess etcd;    ///< The same.
    security::CredentialSources trust;
    store::Dialect store_dialect = store::Dialect::v1_13;  ///< Of clients that send no greeting.

    // Time.
    Duration join_timeout = std::chrono::minutes(10);
    Duration last_call = std::chrono::seconds(3);
    Duration heartbeat_timeout = std::chrono::seconds(3);
    Duration shutdown_timeout = std::chrono::seconds(30);
    Duration grow_after = std::chrono::seconds(5);
    Duration hang_timeout{};  ///< Zero: none.
    double hang_factor = 5;
    Duration hang_floor = std::chrono::seconds(10);
    double monitor_interval = 0.1;  ///< Accepted without effect.
    std::vector<int> signals;       ///< Numbers of the signals that end the run here.
    std::string signal_names;

    // Recovery.
    std::uint32_t standbys = 0;
    std::map<int, rendezvous::Reaction> on_exit;
    rendezvous::Budgets budgets;
    Duration regroup_window = std::chrono::milliseconds(200);
    Duration prepare_timeout = std::chrono::minutes(2);
    Duration finish_timeout{};     ///< Zero: no limit.
    std::string health = "basic";  ///< off, basic or full.

    // Output.
    std::optional<agent::StdinReader> stdin_reader;  ///< Nothing: the convention of `front`.
    std::optional<std::string> log_dir;
    agent::StreamSpec redirects;
    agent::StreamSpec tee;
    std::optional<std::set<std::uint32_t>> local_ranks_filter;
    std::string log_line_prefix;
    std::vector<std::string> stdout_needles;
    std::vector<std::string> stderr_needles;
    std::uint64_t log_file_bytes_max = 0;
    bool console_events = false;
    EventLogOptions event_log;

    // Placement.
    std::string numa_binding;   ///< node, socket, exclusive, core-complex, or empty.
    std::string cpus_per_rank;  ///< auto, a number, or empty.
    std::string gpus_per_rank;  ///< auto, a number, or empty.
    bool report_bindings = false;
    bool virtual_local_rank = false;

    // Program.
    bool module = false;
    bool no_python = false;
    bool run_path = false;
    bool use_env = false;
    std::vector<std::string> preload;  ///< Python modules that a fork server imports.
    std::string interpreter;           ///< For Python, unless PYTHON_EXEC names one; may be empty.
    std::string program;
    std::vector<std::string> arguments;
    std::vector<std::string> notes;  ///< What the user should know about the flags; printed.
};

/// Parses the arguments after `regroup run`, `torchrun` or `regroup launch`. See FlagTable
/// for the rules.
/// Errors: invalid_argument, one line that names the flag or variable.
Result<std::variant<RunOptions, ShowText>> parse_run_options(
    Front front, std::span<const std::string> arguments);

}  // namespace regroup::launcher
