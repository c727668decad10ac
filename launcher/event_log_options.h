// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <string>

#include "launcher/flag_table.h"

namespace regroup::launcher {

struct EventLogOptions {
    std::string file;  ///< Empty: there is no event log.
    std::uint32_t megabytes = 16;
};
/// Declares --event-log and --event-log-size.
void add_event_log_flags(FlagTable& flags, EventLogOptions& out);

}  // namespace regroup::launcher
