// SPDX-License-Identifier: Apache-2.0
#include "launcher/flag_values.h"
#include "launcher/run_flag_table.h"

namespace regroup::launcher {

void declare_snapshots(FlagTable& flags, RunFlags& out) {
    flags.group("Snapshots");
    agent::SnapshotOptions& snapshots = out.agent.snapshots;
    flags.value({"--snapshot-dir", "DIR", "",
                 "Folder in which the agents keep the snapshots of programs that save them: one "
                 "version each --snapshot-interval, and the last one at the end. One folder for "
                 "one training, best on a file system that all nodes share. Without it, snapshots "
                 "are kept in memory only",
                 "--snapshot-dir=/scratch/run7", "REGROUP_SNAPSHOT_DIR", true},
                [&snapshots](const std::string& text) -> std::string {
                    snapshots.folder = text;
                    return text.empty() ? "must not be empty" : "";
                });
    flags.value({"--snapshot-memory", "BYTES", "half of what is free",
                 "Memory of this node for snapshots: two versions of the state of each of its "
                 "workers, two of another node's, and one more with --snapshot-dir. Units: k, M, G",
                 "--snapshot-memory=64G", "", true},
                [&snapshots](const std::string& text) -> std::string {
                    std::uint64_t bytes = 0;
                    const std::string wrong = bytes_into(bytes)(text);
                    snapshots.memory_max = bytes;
                    return wrong.empty() && bytes == 0 ? "must be above 0" : wrong;
                });
    flags.value({"--snapshot-interval", "SECONDS", "600",
                 "Time between two versions in --snapshot-dir. 0: each version that all ranks "
                 "have saved, if the disk is fast enough",
                 "--snapshot-interval=60", "", true},
                seconds_into(snapshots.interval));
}

}  // namespace regroup::launcher
