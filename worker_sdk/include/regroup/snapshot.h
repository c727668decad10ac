// SPDX-License-Identifier: Apache-2.0
//
// The state of a training, kept beside the workers: in the memory of the agents, on two nodes, and
// in a folder.
//
//     const regroup::Context context = regroup::Context::from_environment();
//     regroup::Snapshot snapshot(context);
//     snapshot.add("weights", std::span<float>(weights));
//     for (std::uint64_t step = snapshot.load().value_or(0); step < 10'000; ++step) {
//         if (step % 10 == 0) {
//             snapshot.save(step);
//         }
//         train(step, weights);
//     }
//
// `save` costs a copy of the state in memory. After the loss of workers, a node or the daemon,
// `load` in the new workers gives all ranks the newest step that every rank had saved, verified,
// also when there are more or fewer ranks than before.
#pragma once

#include <regroup/context.h>
#include <regroup/tensor_view.h>

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace regroup {

struct SnapshotOptions {
    /// Of the state, if a program keeps several: letters, digits, '-', '_' and '.'.
    std::string name = "state";
    /// The state is the same on all ranks. Then only one rank of each node saves, and each node has
    /// it all. Otherwise each rank saves its own part.
    bool replicated = false;
    /// Where snapshots are kept on a disk. Empty: the folder of `regroup run --snapshot-dir`
    /// (REGROUP_SNAPSHOT_DIR), or none. Under the regroup launcher the agents write it, and this
    /// is not used. One folder for one training.
    std::filesystem::path folder = {};
    /// Threads that copy in `save`, and verify in `load`; 0: two, or one where ranks share few
    /// CPUs.
    unsigned threads = 0;
};

/// The place of a tensor in a larger one, whose other pieces are on other ranks: `shape[i]`
/// elements from `offset[i]` on, of `global_shape[i]`, in dimension i.
struct TensorPiece {
    std::vector<std::uint64_t> shape;
    std::vector<std::uint64_t> offset;
    std::vector<std::uint64_t> global_shape;
};

/// The state of a training, saved every few steps.
///
/// All ranks of the context create it, and call `load` and `save`, in the same order and with the
/// same steps. It belongs to one round: in the next one, make another from the new context, which
/// finds what this one has saved. One thread at a time.
///
/// Under the regroup launcher the agent holds two versions of the part of each worker in memory
/// (twice the size of the state, within `--snapshot-memory`), and copies of the parts of another
/// node. In other programs the process holds them, and a thread writes each to the folder.
class Snapshot {
   public:
    /// Throws Error `invalid_argument` for a name that is none.
    explicit Snapshot(const Context& context, SnapshotOptions options = {});
    /// The memory of the last versions stays with the agent.
    ~Snapshot();
    Snapshot(const Snapshot&) = delete;
    Snapshot& operator=(const Snapshot&) = delete;

    /// Adds a tensor, in host or GPU memory. The caller owns it and keeps it in place. The same
    /// names on every rank. Throws Error `invalid_argument`, naming it, for a name that is there
    /// already, or a piece that is not within its tensor.
    void add(std::string name, TensorView tensor);
    /// The same for the piece of a larger tensor that this rank has. Pieces of ranks may overlap.
    void add(std::string name, TensorView tensor, TensorPiece piece);
    /// The same for a state that is no tensor: `save` returns its bytes, `load` takes them. Other
    /// numbers of ranks get the bytes of rank 0.
    void add(std::string name, std::function<std::string()> save,
             std::function<void(std::string_view)> load);
    /// Forgets what was added, for a program whose tensors are other ones in each step.
    void clear() noexcept;

    /// Gives all ranks the newest step that is whole: saved by every rank and, as its hashes show,
    /// undamaged. It comes from the memory of this node, of another node, or from the folder. A
    /// damaged part is reported (standard error, and the launcher), and the next copy of it is
    /// used; if there is none, the step before. Returns the step, or nullopt if there is none:
    /// then nothing has changed. A collective; blocks.
    ///
    /// Throws Error: `invalid_argument` if the newest whole step has no such tensor, or one of
    /// another shape or type; `disconnected` if some of it is on a node that cannot be reached: a
    /// later round may have it; `fenced` if the round is over; as the store of the context.
    std::optional<std::uint64_t> load();

    /// Copies the state of `step`; returns when it may be changed again. Never gives up the newest
    /// step that is kept: if the step before is not saved by all ranks yet, and copied to other
    /// nodes, it waits for that, for up to a minute. False if that was in vain, or if the state has
    /// grown beyond the memory; this step is then not kept, which is said on standard error. The
    /// step that was loaded is not copied again.
    ///
    /// Throws Error: `system` if the memory is beyond the limit, with both numbers, in the first
    /// call; `fenced` if the round is over.
    bool save(std::uint64_t step);

    /// The newest step that every rank has saved, as far as this rank knows.
    [[nodiscard]] std::optional<std::uint64_t> whole_step() const;
    /// The newest step that every rank has saved, and of which each part is on two nodes, as far as
    /// this rank knows. Without other nodes, as whole_step. Stands still while the training goes on
    /// without copies, because none could be made for 10 s.
    [[nodiscard]] std::optional<std::uint64_t> kept_step() const;
    /// Waits until every rank has saved what this rank saved last. False if that takes longer.
    [[nodiscard]] bool wait_until_whole(std::chrono::nanoseconds limit) const;
    /// Waits until the last save is kept, as kept_step says. False if that takes longer, or no copy
    /// is made.
    [[nodiscard]] bool wait_until_kept(std::chrono::nanoseconds limit) const;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup
