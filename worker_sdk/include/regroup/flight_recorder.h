// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>

namespace regroup {

/// The last 2,000 operations of this process's groups, of all rounds, as a JSON object in UTF-8.
/// Its fields are those of PyTorch's flight recorder (version 2.10): `pg_config` has the groups,
/// `entries` the operations, oldest first, and `pg_status` the last collective of each group that
/// was issued, begun and completed, as far as it is among the entries (else -1). An entry has its
/// sequence number, its name, its sizes, the times in nanoseconds since 1970, and as its `state`
/// "scheduled" (issued), "started" or "completed". `standings` has what this rank knows of the
/// others: on "cpu", ranks tell each other when a collective takes longer than a second. Any
/// thread; does not wait for any operation.
///
/// If REGROUP_FLIGHT_RECORD is set when `Context::from_environment` runs, the record is also
/// written to a file whose name is that text and the rank: whenever a group fails, and at each
/// signal that REGROUP_FLIGHT_RECORD_SIGNAL names ("USR1", "USR2").
[[nodiscard]] std::string flight_record();

/// Writes flight_record() to `path`; the file is never incomplete. Throws Error `system`.
void save_flight_record(const std::string& path);

}  // namespace regroup
