// SPDX-License-Identifier: Apache-2.0
//
// The ranks' records of the snapshots of a job, and the judge of these records.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <vector>

#include "tests/chaos/record_file.h"

namespace regroup::chaos {

enum class SnapshotEvent : std::uint32_t {
    begun,   ///< Is about to load. `folder_step`: the newest complete step in the folder.
    loaded,  ///< load() gave `step`, or nothing.
    saved,   ///< save() of `step` has returned true.
    whole,   ///< whole_step() says `step`, for the first time.
    kept,    ///< kept_step() says `step`, for the first time.
};
inline constexpr std::uint64_t kNoStep = std::numeric_limits<std::uint64_t>::max();

struct SnapshotRecord {
    SnapshotEvent event = SnapshotEvent::begun;
    std::uint32_t rank = 0;
    std::uint32_t world_size = 0;
    std::uint32_t node = 0;       ///< Its group rank.
    std::uint32_t nodes = 0;      ///< Of the round.
    std::uint32_t is_intact = 1;  ///< 0: not all that was loaded is of that step.
    std::int64_t agent = 0;       ///< Its pid, which no other agent of the run has.
    std::uint64_t round = 0;
    std::uint64_t step = kNoStep;
    std::uint64_t folder_step = kNoStep;
    std::int64_t at = 0;  ///< CLOCK_MONOTONIC, in ns.
};
static_assert(sizeof(SnapshotRecord) == 64);

/// Appends to a new file in a folder. A failed write ends the process.
class SnapshotLog {
   public:
    explicit SnapshotLog(const std::string& folder);

    /// Fills in the time.
    void write(SnapshotRecord record);

   private:
    RecordFile file_;
};

/// The logs in the folder, one for each process.
[[nodiscard]] std::vector<Records<SnapshotRecord>> read_snapshot_logs(const std::string& folder);

/// The newest complete step in a folder for snapshots (docs/snapshots.md), or kNoStep.
[[nodiscard]] std::uint64_t newest_in_folder(const std::string& folder);

struct SnapshotHistory {
    std::size_t loads = 0;    ///< Rounds in which at least one rank has loaded a step, or none.
    std::size_t bound = 0;    ///< Those in which a kept step had to be there,
    std::size_t excused = 0;  ///< and those before which a node and that with its copies were lost.
    std::size_t from_other_memory = 0;  ///< Of `bound`: a node was lost.
    // Errors, one sentence each; only the first few.
    std::vector<std::string> different;  ///< Ranks of a round loaded different or damaged steps.
    std::vector<std::string> lost;       ///< A kept step was lost.
    std::vector<std::string> too_old;    ///< More than one interval was lost.
    std::vector<std::string> behind_folder;
};

/// Judges loads against what was reported before. `interval`: steps between two saves.
///
/// The newest kept step, of round A, must be there in a later round B if of each agent that was in
/// a round from A on and before B, that agent is in B, or the one that held its copies. (The agents
/// of a round hold each other's copies; the one half the world away in the order of group ranks.)
/// The newest step that all ranks have saved, or that one of them knew to be whole, must be there
/// if all these agents are in B; if only the copies are, the step may be one interval older. The
/// newest step of the folder must always be there. A step that was lost is not asked for again.
[[nodiscard]] SnapshotHistory judge_snapshots(const std::vector<Records<SnapshotRecord>>& logs,
                                              std::uint64_t interval);

/// The newest step that all ranks of the last round with steps have saved; nothing if there is
/// none.
[[nodiscard]] std::optional<std::uint64_t> last_saved_by_all(
    const std::vector<Records<SnapshotRecord>>& logs);

}  // namespace regroup::chaos
