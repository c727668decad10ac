// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <optional>
#include <string>

#include "agent/process/line_splitter.h"
#include "agent/process/line_writer.h"
#include "agent/process/readable_watch.h"
#include "agent/process/stream_plan.h"

namespace regroup::agent {

/// One stream of output of one worker: from the pipe to its file, unchanged, and to the terminal,
/// line by line.
class WorkerStream {
   public:
    /// A file could not be opened or written; the bytes at hand are lost to it.
    using OnFileError = std::function<void(const std::string& path, int error_number)>;

    /// `plan` is a relayed one. What is taken in is added to `bytes`. `clock`, `terminal` and
    /// `bytes` must outlive this object.
    WorkerStream(const Clock& clock, LineWriter& terminal, StreamPlan plan, std::uint64_t& bytes,
                 OnFileError on_file_error);
    WorkerStream(const WorkerStream&) = delete;
    WorkerStream& operator=(const WorkerStream&) = delete;

    /// Opens the pipe and begins to read. The worker's end of the pipe is the result. Errors:
    /// system.
    Result<UniqueFd> open(boost::asio::io_context& io);

    /// What is written from now on goes where `plan`, a relayed one, says: the worker lives on
    /// under another rank or in another round. What it has begun is ended as a line.
    void replan(StreamPlan plan);

    /// Opens the file, if there is to be one and it is not open. The first bytes do the same.
    void open_file();

    /// Takes in what is in the pipe at this moment, and ends the last line. Never waits: the pipe
    /// may stay open, in the hands of a child of the worker, and is read on then.
    void drain();

    /// The last lines, shortened, each with its line end.
    [[nodiscard]] std::string tail() const;

    [[nodiscard]] const std::string& path() const noexcept { return plan_.path; }

   private:
    void handle_readable();
    /// Reads at most `bytes_max` bytes. How many, 0 for the end of the stream, -1 for none now.
    long read_some(std::size_t bytes_max);
    void keep(std::string_view bytes);
    void rotate();
    void keep_filtered(std::string_view line);
    void show(std::string_view line);
    void show_batch();

    const Clock& clock_;
    LineWriter& terminal_;
    StreamPlan plan_;
    std::uint64_t& bytes_;
    OnFileError on_file_error_;
    UniqueFd file_;
    std::uint64_t file_bytes_ = 0;
    UniqueFd filter_file_;
    bool filter_tried_ = false;
    std::optional<ReadableWatch> pipe_;
    LineSplitter splitter_;
    std::string batch_;  ///< Whole lines with their prefixes, for one write.
    std::size_t batch_lines_ = 0;
    std::deque<std::string> tail_;
};

}  // namespace regroup::agent
