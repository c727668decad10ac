// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <string_view>

#include "agent/process/asio_forward.h"
#include "agent/process/stream_plan.h"
#include "agent/process/unique_fd.h"
#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

class LineWriter;
class WorkerStream;

struct OutputRelayOptions {
    int stdout_fd = 1;  ///< Where people read; stays the caller's.
    int stderr_fd = 2;
    bool files = false;  ///< Whether workers have files, to which people can be referred.
};

/// Takes in what the workers of this node write: each line to the terminal with its rank before
/// it, never mixed with another's, and every byte, unchanged, to the file of that rank.
///
/// A worker never waits for the terminal or for a full disk. The terminal loses lines then, and is
/// told how many; the file loses bytes, and that is said once. (A file system that hangs does hold
/// up the agent.)
class OutputRelay {
   public:
    /// Sets SIGPIPE to be ignored: whoever reads our output may leave. `clock` must outlive this.
    OutputRelay(boost::asio::io_context& io, const Clock& clock, OutputRelayOptions options);
    ~OutputRelay();
    OutputRelay(const OutputRelay&) = delete;
    OutputRelay& operator=(const OutputRelay&) = delete;

    /// The worker's ends of its pipes, for ProcessSpec; empty for a stream that it inherits. To be
    /// closed once it was launched.
    struct Pipes {
        UniqueFd stdout_fd;
        UniqueFd stderr_fd;
    };

    /// Makes pipes for a worker that is to be launched, in place of those of an earlier worker with
    /// this local rank. Folders that files need are made. Errors: system.
    Result<Pipes> open(std::uint32_t local_rank, const StreamPlan& out, const StreamPlan& err);

    /// For a worker that goes on under another rank, or in another round: what it writes from now
    /// on goes where these say. A stream that is inherited or discarded stays so.
    void replan(std::uint32_t local_rank, const StreamPlan& out, const StreamPlan& err);

    /// Opens the files of all workers, which otherwise appear when there is something to write.
    /// To be called once the workers were launched, who then need not wait for a slow file system.
    void open_files();

    /// Takes in all that the worker wrote so far. To be called once its exit was seen, before it
    /// is reported. Never waits, not even for a child of the worker that holds the pipe open.
    void drain(std::uint32_t local_rank);

    /// The worker's last lines on stderr, at most 20 and shortened, each with its line end; those
    /// on stdout when it wrote nothing to stderr.
    [[nodiscard]] std::string last_output(std::uint32_t local_rank) const;

    /// The file that last_output() is from; empty without files.
    [[nodiscard]] std::string last_output_file(std::uint32_t local_rank) const;

    /// How many bytes the worker has written so far, as far as they were taken in.
    [[nodiscard]] std::uint64_t bytes(std::uint32_t local_rank) const;
    /// Whether any stream of a worker passes through here; inherited ones do not.
    [[nodiscard]] bool relays() const noexcept;

    /// Takes in what is there and closes all pipes and files: nobody should write any more.
    void close_all();

    /// A line of the agent's own, to stderr, as "regroup: `line`".
    void say(std::string_view line);

    /// Whole lines to stderr as they are, such as a report.
    void say_text(std::string_view lines);

    /// Waits until people have got everything, but not beyond `deadline`. Whether they have.
    bool flush(Instant deadline);

   private:
    struct Worker;

    /// The worker's stderr, or its stdout when it wrote only there; null for no such worker.
    [[nodiscard]] const WorkerStream* last_written(std::uint32_t local_rank) const;
    void report_file_error(const std::string& path, int error_number);

    boost::asio::io_context& io_;
    const Clock& clock_;
    OutputRelayOptions options_;
    std::unique_ptr<LineWriter> stdout_;  ///< Null when both lead to the same place.
    std::unique_ptr<LineWriter> stderr_;
    bool file_error_said_ = false;
    std::map<std::uint32_t, std::unique_ptr<Worker>> workers_;  ///< By local rank.
};

}  // namespace regroup::agent
