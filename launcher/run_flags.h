// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "launcher/flag_table.h"
#include "launcher/run_options.h"

namespace regroup::launcher {

inline constexpr const char* kDefaultSignals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/// Flags that are no option of a run by themselves.
struct SpecialFlags {
    std::map<std::string, std::string> conf;  ///< --rdzv-conf.
    std::string start_method;                 ///< Accepted, and of no effect.
    std::string logs_specs;
    std::string shell;  ///< --print-completion.
};

/// Declares the flags of `regroup run` in the order of its help; what they take goes to `options`
/// and `special`, which must outlive the table's parse().
void declare_run_flags(FlagTable& flags, RunOptions& options, SpecialFlags& special);

}  // namespace regroup::launcher
