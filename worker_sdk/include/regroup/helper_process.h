// SPDX-License-Identifier: Apache-2.0
// Processes that work for a rank, such as those that load its data.
#pragma once

namespace regroup {

/// For a child process of a rank: from now on it ignores `signal`, such as SIGTERM. A scheduler may
/// send that to all processes of a job, and the rank may need the child for saving its state. The
/// child ends, by _exit(0), if its parent sends the signal, or has ended when the signal comes.
/// Replaces the handler of the signal. Programs that the child executes do not inherit it. Any
/// thread. Throws an Error (invalid_argument) for a signal that cannot be handled.
void obey_only_parent(int signal);

}  // namespace regroup
