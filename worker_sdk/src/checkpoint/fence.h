// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

#include "rendezvous/files/unique_fd.h"

namespace regroup::checkpointing {

/// The training and the round that have saved a checkpoint. The later history wins; in one history
/// the later round wins.
struct Author {
    std::uint64_t began = 0;  ///< See link::history.
    std::uint64_t round = 0;
};

/// The author of `path`; zeros if the file is not there or has no author.
[[nodiscard]] Author author_of(const std::filesystem::path& path);

/// Throws Error `fenced` if `author` must not overwrite `path` any more: its round is over, or a
/// later round has saved the file. Call it under the lock.
void check_fence(const std::filesystem::path& path, const Author& author);

/// Excludes other writers of `path`, in any process on any machine that shares the file system, if
/// that supports locks. Released with the process at the latest.
class FileLock {
   public:
    /// Throws Error: `deadline_exceeded` if another holds it for too long; `system`.
    explicit FileLock(const std::filesystem::path& path);

   private:
    UniqueFd file_;
};

}  // namespace regroup::checkpointing
