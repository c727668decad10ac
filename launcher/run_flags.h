// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <string>

#include "launcher/flag_table.h"
#include "launcher/run_options.h"

namespace regroup::launcher {

inline constexpr const char* kDefaultSignals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";

/// Values of flags that are not fields of RunOptions.
struct SpecialFlags {
    std::map<std::string, std::string> conf;  ///< --rdzv-conf.
    std::string start_method;                 ///< Accepted without effect.
    std::string logs_specs;
    std::string shell;  ///< --print-completion.
};

/// Declares the flags of `regroup run` in the order of its help. The values go to `options` and
/// `special`, which must outlive the parse() of the table.
void declare_run_flags(FlagTable& flags, RunOptions& options, SpecialFlags& special);

}  // namespace regroup::launcher
