// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "launcher/flag_table.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/journal/etcd_access.h"
#include "rendezvous/journal/journal.h"

namespace regroup::launcher {

/// The journal of a daemon.
struct StateOptions {
    /// A directory, "etcd://HOST:PORT[,HOST:PORT...]", the same with "etcds://" for TLS, or "none".
    /// Empty, for `regroup serve`: the default directory.
    std::string where;
    journal::EtcdAccess access;
    Duration lease = std::chrono::seconds(3);  ///< etcd: silence after which another daemon leads.
    std::string advertise;                     ///< etcd: this daemon's HOST:PORT for agents.

    /// False if the jobs are kept in memory only.
    [[nodiscard]] bool keeps_jobs() const { return !where.empty() && where != "none"; }
    /// Only one process can use a directory at a time.
    [[nodiscard]] bool is_directory() const {
        return keeps_jobs() && where.find("://") == where.npos;
    }
};

/// Declares --state, --lease, --advertise and those of add_etcd_flags().
void add_state_flags(FlagTable& flags, StateOptions& out);

/// The default directory of a daemon on `port`: regroup/serve-PORT in XDG_STATE_HOME, or in
/// .local/state of the home folder. Empty if neither variable is set.
[[nodiscard]] std::string usual_state(std::uint16_t port);

/// Opens the journal; null for "none" and for an empty `where`. `io` and `clock` outlive it.
/// Errors: the reason why the journal cannot be opened, or the process that uses it; flags of etcd
/// that do not fit together, and their files, if they cannot be used.
Result<std::unique_ptr<journal::Journal>> open_state(boost::asio::io_context& io,
                                                     const Clock& clock,
                                                     const StateOptions& options);

}  // namespace regroup::launcher
