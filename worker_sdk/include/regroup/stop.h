// SPDX-License-Identifier: Apache-2.0
//
// An agreed stop for plain loops:
//
//     regroup::Snapshot snapshot(regroup::Context::from_environment());
//     snapshot.add("weights", std::span<float>(weights));
//     for (std::uint64_t step = snapshot.load().value_or(0); step < 10'000; ++step) {
//         if (regroup::stop_requested(step)) {
//             snapshot.save(step);
//             break;
//         }
//         train(step, weights);
//     }
//
// After SIGTERM to any rank, or when the launcher asks for it (SIGTERM or Ctrl-C to `regroup run`,
// `regroup drain`, a node that joins), the answer is true on all ranks at the same step.
#pragma once

#include <regroup/context.h>

#include <cstdint>

namespace regroup {

/// Whether all ranks stop before `step`. Call it on every rank, at the same place of each step. The
/// answer is the same on all ranks, without a collective: when a stop is asked for, a thread of the
/// SDK on each rank tells the others the last step that its rank has begun, and they stop at the
/// next step that none has begun. True for all later steps, too.
///
/// Costs about 10 ns. Blocks only while ranks agree, after a stop was asked for, for 10
/// s at most. The first call is slower: it reads the Context from the environment, connects to the
/// store, starts two threads of the SDK, and lets SIGTERM ask for a stop instead of ending this
/// process, unless the program handles or ignores SIGTERM. If the ranks cannot agree, SIGTERM ends
/// the process after all. SIGTERM from the agent of `regroup run` always ends it at once: the agent
/// asks for a stop by other means, and sends SIGTERM after a failure, when nobody can go on.
///
/// `step` must not be smaller than in the call before: count over all epochs. A rank that has ended
/// in order (exit, return from main) counts as one that begins no more steps. Under `regroup run`,
/// a program that ends with exit code 0 after the answer true has not finished its training
/// (docs/operating.md).
///
/// Throws Error: `invalid_argument` for a smaller step; `deadline_exceeded` if ranks have not
/// answered, which it names: they have died, or have not called this function yet; `fenced` if the
/// round is over; in the first call as Context::from_environment and Context::store. One thread at
/// a time. In a forked child the answer is false. ElasticLoop has its own way to stop: do not call
/// this in its steps.
[[nodiscard]] bool stop_requested(std::uint64_t step);

/// The same among the ranks of `context`, for a program that fills it in itself. The context of the
/// first call of the process counts.
[[nodiscard]] bool stop_requested(std::uint64_t step, const Context& context);

}  // namespace regroup
