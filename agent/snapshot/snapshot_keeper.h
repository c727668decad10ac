// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/io_context.hpp>

#include "agent/store/round_store.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/core/messages.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

struct SnapshotOptions {
    std::filesystem::path folder{};                ///< --snapshot-dir; empty: none.
    std::optional<std::uint64_t> memory_max{};     ///< In bytes; nothing: half of what is left.
    Duration interval = std::chrono::minutes(10);  ///< Between two versions in the folder.
    /// How long a worker waits for a part that only a node has which cannot be reached now.
    Duration fetch_limit = std::chrono::seconds(15);
};

/// The agent's part in the snapshots of its workers (rendezvous/snapshot): holds them in memory
/// beyond the life of the workers, keeps copies of the parts of another node, gives workers what
/// they load, and writes whole versions to the folder. Nothing of it exists before the first
/// channel: no thread, no socket.
///
/// All calls from the thread of the io_context, which outlives it; none waits for a copy or a disk.
class SnapshotKeeper {
   public:
    using Say = std::function<void(const std::string& line)>;

    /// `name`: of this node, for people.
    SnapshotKeeper(boost::asio::io_context& io, SnapshotOptions options, StoreMode mode,
                   std::string name, Say say);
    ~SnapshotKeeper();
    SnapshotKeeper(const SnapshotKeeper&) = delete;
    SnapshotKeeper& operator=(const SnapshotKeeper&) = delete;

    /// `own_address`: at which other nodes reach this one; numeric.
    void begin_round(const rendezvous::Assignment& assignment, const std::string& own_address);
    /// A channel for a worker: the worker's end. Errors: system, overloaded.
    Result<UniqueFd> open();

    /// For status and metrics; nothing unless this node has group rank 0 and a version is whole.
    [[nodiscard]] std::optional<rendezvous::SnapshotFacts> facts() const;

    /// The node will leave, and has `grace` for it: begins to write the last whole version to the
    /// folder, while the workers still save. May be called several times.
    void leave(Duration grace);
    /// The workers have ended: writes the last whole version to the folder, unless it is there, and
    /// says so. `on_done` is called once, after `limit` and after the rest of the grace period at
    /// the latest, which is a second at least; at once if there is nothing to write.
    void finish(Duration limit, std::function<void()> on_done);

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::agent
