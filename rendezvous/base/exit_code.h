// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace regroup {

// Exit codes of `regroup`, and of a job, that are not the exit code of a worker.
inline constexpr int kExitJobFailed = 1;
inline constexpr int kExitUsage = 2;
inline constexpr int kExitNoRendezvous = 3;
inline constexpr int kExitNoProgress = 4;  ///< Rounds in a row without a new committed step.
inline constexpr int kExitRequeue = 75;    ///< The state is saved; start the job again. EX_TEMPFAIL
inline constexpr int kExitUnhealthy = 76;  ///< Start this node on another machine.
/// Some ranks have finished, and the others did not within the finish timeout. As timeout(1).
inline constexpr int kExitUnfinished = 124;

}  // namespace regroup
