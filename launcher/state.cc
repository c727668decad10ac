// SPDX-License-Identifier: Apache-2.0
#include "launcher/state.h"

#include <chrono>
#include <cstdlib>
#include <utility>
#include <vector>

#include "launcher/flag_values.h"
#include "rendezvous/journal/sqlite_journal.h"

namespace regroup::launcher {

namespace {

std::int64_t wall_ms() {
    return std::chrono::duration_cast<std::chrono::milliseconds>(
               std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

void add_state_flags(FlagTable& flags, StateOptions& out) {
    flags.value({"--state", "DIR|none", "~/.local/state/regroup/serve-PORT",
                 "Where jobs are kept, so that a daemon that is started again takes them up; none "
                 "keeps them in memory",
                 "--state=/var/lib/regroup", "-", true},
                text_into(out.where));
}

std::string usual_state(std::uint16_t port) {
    const std::string name = "/regroup/serve-" + std::to_string(port);
    const char* state = std::getenv("XDG_STATE_HOME");
    if (state != nullptr && *state == '/') {
        return state + name;
    }
    const char* home = std::getenv("HOME");
    return home != nullptr && *home == '/' ? std::string(home) + "/.local/state" + name : "";
}

Result<std::unique_ptr<journal::Journal>> open_state(boost::asio::io_context& /*io*/,
                                                     const StateOptions& options) {
    if (options.where.empty() || options.where == "none") {
        return std::unique_ptr<journal::Journal>();
    }
    Result<std::unique_ptr<journal::SqliteJournal>> opened =
        journal::SqliteJournal::open(options.where, wall_ms());
    if (!opened) {
        return opened.error();
    }
    return std::unique_ptr<journal::Journal>(std::move(*opened));
}

}  // namespace regroup::launcher
