// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <regroup/context.h>
#include <regroup/snapshot.h>

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/snapshot/image.h"
#include "worker_sdk/src/base/process_mark.h"
#include "worker_sdk/src/snapshot/agreement.h"
#include "worker_sdk/src/snapshot/copy_pool.h"
#include "worker_sdk/src/snapshot/entries.h"
#include "worker_sdk/src/snapshot/keeper.h"
#include "worker_sdk/src/snapshot/look.h"
#include "worker_sdk/src/snapshot/name_hold.h"
#include "worker_sdk/src/snapshot/opened_version.h"
#include "worker_sdk/src/snapshot/own_room.h"
#include "worker_sdk/src/snapshot/whole_watch.h"

namespace regroup::snapshot {

/// The state of one rank in one round: regroup::Snapshot without its shell, and what the interface
/// for C has beyond it. One thread.
class RankSnapshot {
   public:
    RankSnapshot(const Context& context, SnapshotOptions options);
    ~RankSnapshot();
    RankSnapshot(const RankSnapshot&) = delete;
    RankSnapshot& operator=(const RankSnapshot&) = delete;

    void add(Entry entry) { entries_.add(std::move(entry)); }
    void clear() noexcept { entries_.clear(); }

    /// As Snapshot::load.
    std::optional<std::uint64_t> load();
    /// Chooses the newest whole step, for all ranks together. `read` and `bytes` then read it, or,
    /// with `for_entries` here, `fill_entries` on all ranks.
    std::optional<std::uint64_t> open(bool for_entries = false);
    void fill_entries();
    /// Throws Error `invalid_argument` if no step is open, or it has no such tensor.
    void read(const Entry& entry);
    [[nodiscard]] std::span<const std::byte> bytes(const std::string& name);

    /// As in Snapshot.
    bool save(std::uint64_t step);
    [[nodiscard]] std::optional<std::uint64_t> whole_step() const;
    [[nodiscard]] std::optional<std::uint64_t> kept_step() const;
    enum class Until : std::uint8_t { whole, kept };
    [[nodiscard]] bool wait(Until until, Duration limit) const;

   private:
    /// Learns what all nodes have, and begins to count anew.
    void look_together();
    void tell_place_of_copies();
    /// Tells the agent what this round may have to load again, up to `latest`. All else of earlier
    /// rounds may go.
    void tell_loadable(const Version& latest);
    enum class Readiness : std::uint8_t { ready, lost, unreachable };
    /// Whether this rank has all that it needs of the version.
    Readiness prepare(OpenedVersion& opened, bool for_entries);
    /// Puts the loaded version into the room of this rank, so that it is saved in this round, too.
    void keep_loaded(OpenedVersion& opened);
    /// False, and why, if the state has grown and there is no memory for that.
    bool make_room(std::uint64_t bytes, std::uint64_t flexible, std::string& trouble);
    /// The step is not kept; false.
    bool give_up(std::uint64_t step, const std::string& why);
    /// Where both slots have what may be loaded again. Without memory for it, one is given up.
    void make_fresh_room(std::uint64_t bytes, std::uint64_t flexible);
    /// The slot of the room that may be overwritten now.
    [[nodiscard]] std::optional<std::size_t> slot_now(const WholeWatch::State& state) const;
    [[nodiscard]] std::optional<std::size_t> free_slot(Instant deadline);
    void settle(Duration limit) const;

    const ProcessMark mark_;
    const Context context_;
    const SnapshotOptions options_;
    std::optional<NameHold> name_hold_;  // From the first save on.
    const int exceptions_;
    CopyPool pool_;
    Entries entries_;
    const std::unique_ptr<Keeper> keeper_;
    Agreement agreement_;

    Look look_{};
    std::uint64_t looks_ = 0;
    OwnRoom room_{};
    struct {
        std::uint64_t edition = 0;
        std::vector<std::size_t> sizes{};  ///< Of the bytes.
        std::optional<ImageLayout> layout{};
    } layout_cache_;
    std::unique_ptr<OpenedVersion> opened_;
    std::unique_ptr<WholeWatch> watch_;
};

/// Destroyed only by the process that made it: a forked child has none of the threads.
[[nodiscard]] std::shared_ptr<RankSnapshot> make_rank_snapshot(const Context& context,
                                                               SnapshotOptions options);

}  // namespace regroup::snapshot
