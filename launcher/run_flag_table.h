// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "launcher/flag_table.h"
#include "launcher/run_flags.h"
#include "rendezvous/core/job_policy.h"

namespace regroup::launcher {

inline constexpr const char* kDefaultSignals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/// Values of flags that parse_run_flags() itself uses up.
struct SpecialFlags {
    std::map<std::string, std::string> conf;  ///< --rdzv-conf.
    std::string start_method;                 ///< Accepted without effect.
    std::string logs_specs;
    std::string shell;  ///< --print-completion.
};

/// Declares the flags of `regroup run` in the order of its help. The values go to `out` and
/// `special`, which must outlive the parse() of the table.
void declare_run_flags(FlagTable& flags, RunFlags& out, SpecialFlags& special);

/// Declares the group "Recovery": which failures a job survives, and how.
void declare_recovery(FlagTable& flags, RunFlags& out);

/// Declares the group "Snapshots": where and how often the state of the workers is kept.
void declare_snapshots(FlagTable& flags, RunFlags& out);

/// The reactions to exit codes without --on-exit. None under the name torchrun, which treats all
/// codes alike.
[[nodiscard]] std::map<int, rendezvous::Reaction> default_reactions(Front front);

/// "2=fail,75=retry", added to the entries in `out`. "none" clears `out`.
[[nodiscard]] FlagTable::Take reactions_into(std::map<int, rendezvous::Reaction>& out);

}  // namespace regroup::launcher
