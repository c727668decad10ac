// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace regroup::checkpointing {

/// Who has saved a checkpoint. Of two, the later history is right, and in one history the later
/// round.
struct Author {
    std::uint64_t began = 0;  ///< See link::history.
    std::uint64_t round = 0;
};

/// Who has saved `path`; nobody if it is not there, or does not say.
[[nodiscard]] Author author_of(const std::filesystem::path& path);

/// Throws Error `fenced` if `author` must not overwrite `path` any more: its round is over, or a
/// later one has been here. To be called under the lock.
void check_fence(const std::filesystem::path& path, const Author& author);

/// Keeps other writers of `path` out, in any process on any machine that shares the file system, if
/// that knows locks. Freed with the process at the latest.
class FileLock {
   public:
    /// Throws Error: `deadline_exceeded` if another holds it for too long; `system`.
    explicit FileLock(const std::filesystem::path& path);
    ~FileLock();
    FileLock(const FileLock&) = delete;
    FileLock& operator=(const FileLock&) = delete;

   private:
    int fd_ = -1;
};

}  // namespace regroup::checkpointing
