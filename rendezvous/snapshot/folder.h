// SPDX-License-Identifier: Apache-2.0
//
// The folder in which agents keep snapshots on a disk: of one training, on one node or on a file
// system that all nodes share.
//
//     FOLDER/STATE/HISTORY-ROUND-STEP/part-00000-of-00004.safetensors
//     FOLDER/STATE/HISTORY-ROUND-STEP/snapshot.json    when all parts are there
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/snapshot/holdings.h"
#include "rendezvous/snapshot/version.h"

namespace regroup::snapshot {

/// A file in memory, for reading.
class MappedFile {
   public:
    /// Errors: system, invalid_argument for an empty file; naming the file.
    static Result<MappedFile> open(const std::filesystem::path& path);
    MappedFile(MappedFile&& other) noexcept
        : memory_(std::exchange(other.memory_, nullptr)), bytes_(other.bytes_) {}
    MappedFile& operator=(MappedFile&&) = delete;
    ~MappedFile();

    [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return {memory_, bytes_}; }

   private:
    MappedFile(const std::byte* memory, std::size_t bytes) noexcept
        : memory_(memory), bytes_(bytes) {}

    const std::byte* memory_;
    std::size_t bytes_;
};

/// Blocks while the disk works. Any thread.
class Folder {
   public:
    explicit Folder(std::filesystem::path path) : path_(std::move(path)) {}

    [[nodiscard]] const std::filesystem::path& path() const noexcept { return path_; }
    [[nodiscard]] std::filesystem::path file_of(const PartId& id, const Version& version) const;

    /// Writes an image, which has been verified, to the disk: a reader finds the file complete or
    /// not at all. Nothing if another node has written the same part. Writes snapshot.json once all
    /// parts are there. Errors: system, naming the file; deadline_exceeded, if `stop` (may be null)
    /// has become true. Other versions are then untouched.
    [[nodiscard]] Result<void> write(const PartId& id, const Version& version,
                                     std::span<const std::byte> image,
                                     const std::atomic<bool>* stop = nullptr) const;
    /// True if all parts of the version are there.
    [[nodiscard]] bool is_complete(const std::string& name, const Version& version) const;
    /// The files of the state, whole or not, the latest version first. Not verified.
    [[nodiscard]] std::vector<Holding> list(const std::string& name) const;
    /// Deletes versions of the state: all but the latest two that are complete here, and later
    /// ones. Without complete ones, all but the latest three.
    void prune(const std::string& name) const;

   private:
    [[nodiscard]] std::filesystem::path folder_of(const std::string& name,
                                                  const Version& version) const;
    [[nodiscard]] Result<void> write_index(const PartId& id, const Version& version) const;

    std::filesystem::path path_;
};

}  // namespace regroup::snapshot
