// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include <boost/asio/io_context.hpp>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"

namespace regroup::agent {

/// Carries what workers write to the terminal and to their files, and what the agent itself says.
///
/// On the terminal, whole lines only, each with its worker's label, so that lines are never mixed;
/// in the files, the bytes as they were written. No worker ever waits for a slow terminal or a full
/// disk: lines that the terminal does not take in time are dropped and counted, a file that cannot
/// be written is given up with one line. Memory is bounded per worker and per terminal stream.
/// Used from the io_context's one thread.
class OutputRelay {
   public:
    explicit OutputRelay(boost::asio::io_context& io);
    /// Hands the terminal what is still queued, for at most a second.
    ~OutputRelay();
    OutputRelay(const OutputRelay&) = delete;
    OutputRelay& operator=(const OutputRelay&) = delete;

    /// One line of the agent's own on stderr: "regroup: `line`".
    void say(const std::string& line);
    /// Lines of the agent's own, as they are; ends with a newline.
    void say_text(const std::string& text);

    /// What the worker is to have as descriptors 1 and 2. Ours until `started`.
    struct Pipes {
        int stdout_fd = -1;
        int stderr_fd = -1;
    };
    /// Makes pipes for a worker about to be started. Its lines are shown after "[`label`] ", its
    /// bytes go to `file_stem`.out and .err, made when first needed; empty for no files.
    /// Errors: system, when no pipe can be had.
    Result<Pipes> open(std::uint32_t local_rank, const std::string& label,
                       const std::string& file_stem);
    /// The worker has its descriptors, or will never have them: closes ours and begins to read.
    void started(std::uint32_t local_rank);
    /// Reads what the worker has left in its pipes, without waiting for more.
    void drain(std::uint32_t local_rank);
    /// Forgets all workers; unfinished last lines are shown.
    void close_all();

    /// The worker's last lines on stderr, or on stdout if it wrote nothing there; at most 20.
    [[nodiscard]] std::string last_output(std::uint32_t local_rank) const;
    /// The file that holds them, or empty.
    [[nodiscard]] std::string last_output_file(std::uint32_t local_rank) const;

   private:
    struct Impl;
    std::unique_ptr<Impl> impl_;
};

}  // namespace regroup::agent
