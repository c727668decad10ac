// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <span>
#include <string>
#include <variant>
#include <vector>

#include "launcher/cluster/host_file.h"
#include "launcher/flag_table.h"
#include "launcher/run_flags.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher::ssh {

/// The command line of `regroup launch-ssh`.
struct LaunchOptions {
    std::string hosts;      ///< --hosts; empty: the file has them.
    std::string host_file;  ///< --hostfile; empty: the flag has them.
    std::string ssh = "ssh";
    std::string regroup;  ///< Path on the hosts; empty: that of this program.
    std::string folder;   ///< Empty: the current one.
    Duration connect_timeout = std::chrono::seconds(10);
    std::vector<std::string> exports;  ///< Values of -x.

    /// The options of `regroup run`, from the rest of the command line and the environment.
    RunFlags run;
    bool gives_nodes = false;     ///< --nnodes is given.
    bool gives_workers = false;   ///< --nproc-per-node is given.
    bool gives_endpoint = false;  ///< --rdzv-endpoint is given.
    /// The flags of `regroup run` for all hosts, without those that the launcher decides.
    std::vector<std::string> run_flags;
};

/// Parses the arguments after `regroup launch-ssh`. Errors: invalid_argument, one line that names
/// the flag.
Result<std::variant<LaunchOptions, ShowText>> parse_launch_options(
    std::span<const std::string> arguments);

/// The hosts of --hosts or --hostfile. Errors: invalid_argument; system for a file that cannot be
/// read.
Result<std::vector<HostEntry>> read_hosts(const LaunchOptions& options);

/// Checks --nnodes and --standbys against the number of hosts. Errors: invalid_argument, one line.
Result<void> check_node_count(const LaunchOptions& options, std::size_t hosts);

/// The words of --ssh, split as a shell does. Errors: invalid_argument, one line.
Result<std::vector<std::string>> split_command(const std::string& text);

}  // namespace regroup::launcher::ssh
