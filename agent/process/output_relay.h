// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/process/asio_forward.h"
#include "agent/process/console.h"
#include "agent/process/stream_plan.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

class LineWriter;
class WorkerStream;

/// Gets a line that all nodes of the job say alike, and what it is about: its topic. Lines of
/// several nodes that say the same have the same topic, and may differ.
using OnJobLine = std::function<void(const std::string& line, const std::string& topic)>;

struct OutputRelayOptions {
    int stdout_fd = 1;  ///< The terminal; the caller keeps it.
    int stderr_fd = 2;
    bool files = false;  ///< Workers have files, which messages can mention.
    /// If stderr is a terminal, it can replace a row in place: its kind is not "dumb".
    bool in_place = false;
    /// Before each line of the agent's own that begins with "regroup: ".
    std::string own_prefix = {};
    /// So that one place prints each such line once. Empty: this object prints them.
    OnJobLine on_job_line = {};
};

/// Reads the output of the workers of this node. Writes each line to the terminal with its rank,
/// not mixed with other lines, and every byte unchanged to the file of the rank.
///
/// A worker never waits for the terminal or for a full disk. The terminal then loses lines, and a
/// message tells how many. The file loses bytes, with one message. A file system that hangs does
/// block the agent.
class OutputRelay final : public Console {
   public:
    /// Ignores SIGPIPE, because the reader of our output may end. `clock` must outlive this object.
    OutputRelay(boost::asio::io_context& io, const Clock& clock, OutputRelayOptions options);
    ~OutputRelay();
    OutputRelay(const OutputRelay&) = delete;
    OutputRelay& operator=(const OutputRelay&) = delete;

    /// The worker's ends of its pipes, for ProcessSpec; empty for an inherited stream. Close them
    /// after the launch.
    struct Pipes {
        UniqueFd stdout_fd;
        UniqueFd stderr_fd;
    };

    /// Makes the pipes of a worker before its launch. Replaces those of an earlier worker with this
    /// local rank. Makes the folders of its files. Errors: system.
    Result<Pipes> open(std::uint32_t local_rank, const StreamPlan& out, const StreamPlan& err);

    /// Sets new destinations for a worker that goes on with another rank or in another round. An
    /// inherited or discarded stream stays so.
    void replan(std::uint32_t local_rank, const StreamPlan& out, const StreamPlan& err);

    /// Opens the files of all workers; otherwise the first output does. Call after the launch, so
    /// that the workers do not wait for a slow file system.
    void open_files();

    /// Reads all output of the worker so far. Call after its exit, before it is reported. Never
    /// blocks, even if a child of the worker holds the pipe open.
    void drain(std::uint32_t local_rank);

    /// The last lines of the worker on stderr, at most 20 and shortened, each with its line end. If
    /// it wrote nothing to stderr, those on stdout.
    [[nodiscard]] std::string last_output(std::uint32_t local_rank) const;

    /// The file that last_output() is from; empty without files.
    [[nodiscard]] std::string last_output_file(std::uint32_t local_rank) const;

    /// The file to which the worker's stdout or stderr goes now; empty: to none.
    [[nodiscard]] std::string file(std::uint32_t local_rank, bool is_stderr) const;

    /// Number of bytes read so far from each of `workers` workers, by local rank. Nothing if no
    /// stream of a worker passes through this object; inherited ones do not.
    [[nodiscard]] std::optional<std::vector<std::uint64_t>> bytes(std::uint32_t workers) const;

    /// Reads the remaining output and closes all pipes and files. Call when no worker writes any
    /// more.
    void close_all();

    void say(std::string_view line) override;
    void say_of_job(const std::string& line, const std::string& here,
                    const std::string& topic) override;
    [[nodiscard]] bool prints_job_lines() const noexcept override { return !options_.on_job_line; }
    void say_lines(const std::vector<std::string>& lines) override;
    bool show_progress(const std::string& line) override;

    /// Prints whole lines that another process has written, as they are; drops them if nobody takes
    /// them in time, as those of a worker.
    void pass_on(bool to_stderr, std::string_view lines, std::size_t line_count);

    /// Waits until the terminal has everything, or until `deadline`. True if it has.
    bool flush(Instant deadline);

   private:
    struct Worker;

    /// The worker's stderr, or its stdout when it wrote only there; null for no such worker.
    [[nodiscard]] const WorkerStream* last_written(std::uint32_t local_rank) const;
    void report_file_error(const std::string& path, const std::string& reason);

    boost::asio::io_context& io_;
    const Clock& clock_;
    OutputRelayOptions options_;
    std::unique_ptr<LineWriter> stdout_;  ///< Null if stdout and stderr are the same place.
    std::unique_ptr<LineWriter> stderr_;
    bool file_error_said_ = false;
    bool inherits_ = false;  ///< A worker has had a stream of ours as its own.
    std::map<std::uint32_t, std::unique_ptr<Worker>> workers_;  ///< By local rank.
};

}  // namespace regroup::agent
