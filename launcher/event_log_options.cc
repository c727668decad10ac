// SPDX-License-Identifier: Apache-2.0
#include "launcher/event_log_options.h"

#include "launcher/flag_values.h"

namespace regroup::launcher {

void add_event_log_flags(FlagTable& flags, EventLogOptions& out) {
    flags.value({"--event-log", "FILE", "",
                 "Append what happens to the jobs to FILE, one line of JSON for each event. A "
                 "launcher writes what happens to its workers, and the events of the jobs if the "
                 "daemon is a part of it",
                 "--event-log=/var/log/regroup/events.jsonl", "", true},
                text_into(out.file));
    flags.value({"--event-log-size", "MB", "16",
                 "When FILE is as large, it is renamed to FILE.1, in place of the one before",
                 "--event-log-size=100", "", true},
                number_into<std::uint32_t>(out.megabytes, 1, 1024));
}

}  // namespace regroup::launcher
