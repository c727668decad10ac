// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::files {

/// A file to which lines are appended, by a thread of its own: write() never waits. When the disk
/// is full or too slow, lines are lost; the next line is preceded by one that counts them.
///
/// When the file would outgrow `bytes_max`, it becomes `PATH.1`, in place of the one before. The
/// file has mode 0600. It is opened again when another process has renamed or deleted it. Several
/// processes may append to one file.
class LineLog {
   public:
    struct Options {
        std::string path;
        std::uint64_t bytes_max = std::uint64_t{16} << 20U;
        /// The most bytes that wait for the disk.
        std::size_t queue_bytes_max = std::size_t{1} << 20U;
        /// The line, without a newline, that says that `count` lines were lost.
        std::function<std::string(std::uint64_t count)> lost_line;
        /// The file cannot be written; one sentence. Told once until it can be written again. May
        /// be empty.
        ///
        /// Both are called on the log's thread and must own what they use.
        std::function<void(const std::string& trouble)> on_trouble;
    };

    /// Opens the file, so that a mistake in its name is known at once, and so is a `PATH.1` that
    /// another user has put in its way. Errors: system, one sentence that names the file.
    static Result<std::unique_ptr<LineLog>> open(Options options);
    /// Waits for the disk, for two seconds at most.
    ~LineLog();
    LineLog(const LineLog&) = delete;
    LineLog& operator=(const LineLog&) = delete;

    /// Reads the lines of `PATH.1` and then those of the file: of each the newest `bytes_max`
    /// bytes. Lines of more than kLineBytesMax are left out, and a file that is not there, or is a
    /// terminal, has no lines.
    void read(const std::function<void(std::string_view line)>& on_line) const;
    static constexpr std::size_t kLineBytesMax = std::size_t{64} << 10U;

    /// `line` has no newline. Call it on one thread.
    void write(const std::string& line);
    /// Waits until all lines are in the file or lost, or for `limit`. True if none waits.
    bool flush(Duration limit);

   private:
    class File;
    struct Impl;
    explicit LineLog(std::unique_ptr<Impl> impl);
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::files
