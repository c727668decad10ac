// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include <boost/asio/steady_timer.hpp>

#include "agent/process/line_splitter.h"
#include "agent/process/line_writer.h"
#include "agent/process/readable_watch.h"
#include "agent/process/stream_plan.h"

namespace regroup::agent {

/// One output stream of one worker: copied from the pipe to its file unchanged, and to the terminal
/// line by line.
class WorkerStream {
   public:
    /// A file could not be opened or written, for `reason`. The file lacks the present bytes.
    using OnFileError = std::function<void(const std::string& path, const std::string& reason)>;

    /// Requires that `plan` is relayed. Adds the number of bytes read to `bytes`. `clock`,
    /// `terminal` and `bytes` must outlive this object.
    WorkerStream(const Clock& clock, LineWriter& terminal, StreamPlan plan, std::uint64_t& bytes,
                 OnFileError on_file_error);
    WorkerStream(const WorkerStream&) = delete;
    WorkerStream& operator=(const WorkerStream&) = delete;

    /// Opens the pipe and begins to read. Returns the worker's end of the pipe. Errors: system.
    Result<UniqueFd> open(boost::asio::io_context& io);

    /// Sets new destinations, for a worker that goes on with another rank or in another round.
    /// Requires that `plan` is relayed. Ends a partial line.
    void replan(StreamPlan plan);

    /// Opens the file, if there is one and it is not open. The first output does the same.
    void open_file();

    /// Reads all that is in the pipe now, and ends the last line. Never blocks: if a child of the
    /// worker holds the pipe open, reading continues later.
    void drain();

    /// The last lines, shortened, each with its line end.
    [[nodiscard]] std::string tail() const;

    [[nodiscard]] const std::string& path() const noexcept { return plan_.path; }

   private:
    void handle_readable();
    /// Reads at most `bytes_max` bytes. Returns their number, 0 at the end of the stream, -1 if
    /// there are none now.
    long read_some(std::size_t bytes_max);
    void keep(std::string_view bytes);
    /// Writes to the file, if it is open.
    void append(std::string_view bytes);
    void rotate();
    void keep_filtered(std::string_view line);
    void show(std::string_view line);
    void show_batch();
    void await_rest();
    void show_partial();

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
    boost::asio::io_context* io_ = nullptr;  ///< Once open.
    /// Runs while a partial line waits for its end. Handlers hold it weakly.
    std::shared_ptr<boost::asio::steady_timer> rest_timer_;
};

}  // namespace regroup::agent
