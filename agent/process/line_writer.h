// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "agent/process/readable_watch.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Writes whole lines to a descriptor that belongs to others too, such as the user's terminal, and
/// never waits for it: what is not taken at once is queued up to a bound and then dropped, with a
/// line that says how many were.
///
/// O_NONBLOCK is a property of the open file that the shell and other programs share, so it is
/// left alone: a terminal or a pipe is opened anew, a socket is sent to without waiting. The
/// process must ignore SIGPIPE; a reader that has gone away is no error, and its lines vanish.
class LineWriter {
   public:
    static constexpr std::size_t kQueueBytesMax = std::size_t{1} << 20;

    /// `fd` stays the caller's. `consolation` ends the sentence about dropped lines; may be empty.
    LineWriter(boost::asio::io_context& io, int fd, std::string consolation);
    LineWriter(const LineWriter&) = delete;
    LineWriter& operator=(const LineWriter&) = delete;

    /// Writes `lines`, `line_count` whole ones, or queues them, or drops them all.
    void write(std::string_view lines, std::size_t line_count);

    /// The same for a line of the agent's own, which is dropped only far beyond the bound.
    void write_own(std::string_view line);

    /// Waits until everything is written, but not beyond `deadline`. Whether everything is.
    bool flush(const Clock& clock, Instant deadline);

   private:
    /// How to write without waiting.
    enum class Way {
        unknown,
        own_open_file,  ///< Opened anew, non-blocking.
        socket,
        pieces,  ///< Could not be opened anew: what surely fits, when poll(2) says so.
        direct,  ///< A file, or a device like /dev/null: takes everything at once.
    };

    void choose_way();
    void accept(std::string_view lines);
    void pump();
    [[nodiscard]] long write_some(std::string_view bytes);
    void await_writable();
    [[nodiscard]] int target() const noexcept { return own_ ? own_.get() : fd_; }

    boost::asio::io_context& io_;
    int fd_;
    std::string consolation_;
    Way way_ = Way::unknown;
    std::size_t piece_bytes_ = 0;
    UniqueFd own_;
    std::string queue_;
    std::size_t written_ = 0;  ///< Bytes at the front of `queue_` that are out.
    std::size_t dropped_ = 0;  ///< Lines since the queue was last empty.
    bool broken_ = false;      ///< The reader is gone.
    /// An epoll set with the target in it. Asio watches the set: it would make the target itself
    /// non-blocking.
    std::optional<ReadableWatch> writable_;
};

}  // namespace regroup::agent
