// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/types.h>

namespace regroup::agent {

/// What makes `kill -9` of the launcher leave nothing behind.
///
/// A process that is killed cannot clean up after itself, and a parent-death signal reaches only its
/// direct children, not a grandchild with a session of its own. So the launcher is two processes:
/// the one that the user started becomes the warden, which does nothing but wait; its child is the
/// agent. Both are subreapers, so that every descendant stays in sight of whichever is left:
///
///   - the agent is killed: all its descendants become the warden's, which kills them;
///   - the warden is killed: the agent sees the end of `parent_gone_fd`, kills all and ends.
///
/// Killed both at the same instant, the workers die by their parent-death signal, but descendants of
/// theirs that left their session survive: nothing alive remains to end them.
struct AgentSide {
    /// Readable (end of file) once the warden is gone.
    int parent_gone_fd = -1;
};

/// Splits this process in two. Returns in the child only, the agent. The parent forwards SIGTERM,
/// SIGINT, SIGHUP, SIGQUIT, SIGUSR1 and SIGUSR2 to it, those excepted that the terminal has already
/// sent to both and those that it was started with ignored, and then ends as the agent ends. To be
/// called before any thread or io_context exists. If the system refuses to fork, the agent goes on
/// in this process, unguarded, with a line on stderr.
[[nodiscard]] AgentSide split_off_warden();

/// In the agent, when the warden is gone: kills everything and ends the process.
[[noreturn]] void end_without_warden();

}  // namespace regroup::agent
