// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/flag_table.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/journal/journal.h"

namespace regroup::launcher {

/// Where a daemon keeps its jobs.
struct StateOptions {
    /// A directory, "etcd://HOST:PORT[,HOST:PORT...]", or "none". Empty, for `regroup serve`: the
    /// usual directory.
    std::string where;
    Duration lease = std::chrono::seconds(3);  ///< etcd: how soon another daemon takes over.
    std::string advertise;                     ///< etcd: this daemon's HOST:PORT for agents.
};

/// Declares --state, --lease and --advertise.
void add_state_flags(FlagTable& flags, StateOptions& out);

/// True if `where` is a directory, which one process has at a time.
[[nodiscard]] bool is_directory(const std::string& where);

/// The usual directory of a daemon on `port`: regroup/serve-PORT in XDG_STATE_HOME, or in
/// .local/state of the home folder; empty if there is neither.
[[nodiscard]] std::string usual_state(std::uint16_t port);

/// The journal there; none for "none" and for an empty `where`. `io` and `clock` outlive it.
/// Errors: what could not be opened, or is in use by whom.
Result<std::unique_ptr<journal::Journal>> open_state(boost::asio::io_context& io,
                                                     const Clock& clock,
                                                     const StateOptions& options);

}  // namespace regroup::launcher
