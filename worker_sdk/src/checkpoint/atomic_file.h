// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string_view>
#include <sys/types.h>

#include "rendezvous/files/unique_fd.h"

namespace regroup::checkpointing {

/// Of new files; reduced by the umask.
inline constexpr mode_t kFileMode = 0666;

/// A file that is replaced atomically.
///
/// It is written in the same directory as NAME.PID-N.partial and renamed at the end. A running
/// writer holds a lock on its partial file; the next writer removes only files without a lock.
/// Every member throws Error `system`.
class AtomicFile {
   public:
    /// Opens the partial file for `path`, and removes those that killed writers left.
    explicit AtomicFile(std::filesystem::path path);
    /// Without commit(), removes the partial file and leaves `path` unchanged.
    ~AtomicFile();
    AtomicFile(const AtomicFile&) = delete;
    AtomicFile& operator=(const AtomicFile&) = delete;

    void write(std::string_view bytes);

    /// Flushes everything to the disk and renames the file atomically. The previous file stays as
    /// NAME.1, its predecessor as NAME.2, up to `previous_count`.
    void commit(std::size_t previous_count);

    // The parts of commit(), for a caller that needs a lock around `publish`, which is quick.

    void flush();
    void publish(std::size_t previous_count);
    void flush_directory() const;

   private:
    void remove_stale_partials() const;
    void keep_previous(std::size_t previous_count) const;
    [[noreturn]] void fail(std::string_view call, const std::filesystem::path& file,
                           int error_number) const;

    const std::filesystem::path path_;
    const std::filesystem::path directory_;
    std::filesystem::path partial_;
    UniqueFd file_;
    std::uint64_t written_bytes_ = 0;
};

}  // namespace regroup::checkpointing
