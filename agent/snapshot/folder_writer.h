// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "agent/snapshot/shelf.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/files/background.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::agent {

/// Writes whole versions from the memory of this node to the folder for snapshots, behind the
/// workers' back: at an interval, and the last one when the node leaves. A write that fails is
/// told, and changes nothing else. Any thread; nothing waits for the disk.
class FolderWriter {
   public:
    struct Options {
        std::filesystem::path folder;
        Duration interval{};
        /// A sentence for people. Must own what it uses: a disk that does not answer holds its
        /// thread.
        std::function<void(const std::string& sentence)> say;
    };
    FolderWriter(std::shared_ptr<Shelf> shelf, Options options);
    /// Gives up what is being written.
    ~FolderWriter();
    FolderWriter(const FolderWriter&) = delete;
    FolderWriter& operator=(const FolderWriter&) = delete;

    /// True if the interval is over.
    [[nodiscard]] bool is_due(const std::string& state) const;
    /// `version` is whole. `write`: all nodes write it. Otherwise it is written only if the
    /// interval has been over for a long time. May be called several times.
    void whole(const std::string& state, const snapshot::Version& version, bool write);

    /// Writes the last whole version of each state, unless it has been written. The workers may
    /// still be saving.
    void write_now();
    /// The workers have ended: writes the last whole versions, and copies of other nodes' parts
    /// that are not in the folder. `on_done` is called once, on another thread or before this
    /// returns, and says all that there is to say about it before.
    void finish(std::function<void()> on_done);
    /// The time is over: what is being written stays incomplete, and is told.
    void give_up();

    /// The versions of which this node has written its parts.
    [[nodiscard]] std::map<std::string, snapshot::Version> written() const;

   private:
    struct Job;
    struct Shared;
    [[nodiscard]] std::vector<Job> last_versions(bool at_end) const;
    void post(Job job);
    /// How long ago the last write began, or this object.
    [[nodiscard]] Duration since_last_locked(const std::string& state) const;

    const std::shared_ptr<Shelf> shelf_;
    const std::shared_ptr<Shared> shared_;
    const Duration interval_;
    mutable std::mutex mutex_;
    // Guarded by the mutex.
    const Instant began_;
    std::map<std::string, Instant> last_;  ///< When the last write began.
    std::map<std::string, snapshot::Version> begun_;
    files::Background thread_;  ///< With low priority.
};

}  // namespace regroup::agent
