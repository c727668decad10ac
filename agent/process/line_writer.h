// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <string_view>

#include "agent/process/readable_watch.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Writes whole lines to a descriptor that other programs share, such as the user's terminal, and
/// never blocks. Lines that cannot be written at once are queued up to a bound. Further lines are
/// dropped, and a message tells their number.
///
/// O_NONBLOCK would affect the shell and other programs that share the open file, so it is not set:
/// a terminal or a pipe is opened again, and a socket is sent to with MSG_DONTWAIT. The process
/// must ignore SIGPIPE. If the reader has gone away, lines are lost without an error.
class LineWriter {
   public:
    static constexpr std::size_t kQueueBytesMax = std::size_t{1} << 20;

    /// The caller keeps `fd`. `consolation` ends the message about dropped lines; may be empty.
    LineWriter(boost::asio::io_context& io, int fd, std::string consolation);
    LineWriter(const LineWriter&) = delete;
    LineWriter& operator=(const LineWriter&) = delete;

    /// Writes, queues or drops `lines`, which has `line_count` whole lines. If they go on with the
    /// partial line of `stream`, and nothing was written since, only the rest is written.
    void write(std::string_view lines, std::size_t line_count, const void* stream = nullptr);

    /// Writes the beginning of a line of `stream`, or more of it, without an end. The lines of
    /// others begin on a new one.
    void write_partial(std::string_view line, const void* stream);

    /// The same for lines of the agent, whose bound is higher.
    void write_own(std::string_view lines, std::size_t line_count = 1);

    /// Shows `text` below all lines, in place of the one before; empty: none. False if that is not
    /// possible: the target is no terminal, or one that others use now. Requires a terminal that
    /// knows ANSI sequences.
    bool show_status(const std::string& text);

    /// Waits until everything is written, or until `deadline`. True if everything is written.
    bool flush(const Clock& clock, Instant deadline);

   private:
    /// How to write without blocking.
    enum class Way {
        unknown,
        own_open_file,  ///< Opened again, non-blocking.
        socket,
        pieces,  ///< Could not be opened again: small pieces, when poll(2) allows.
        direct,  ///< A file, or a device like /dev/null.
    };

    void choose_way();
    /// Writes above the status.
    void accept_lines(std::string_view lines, const void* stream = nullptr);
    /// The part of `text` that goes on the partial line. Ends the line if it is another stream's.
    std::string_view go_on(std::string_view text, const void* stream);
    void accept(std::string_view bytes);
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
    std::string status_;
    std::string partial_;  ///< The last line so far, if it has no end yet; else empty.
    const void* partial_of_ = nullptr;
    std::string queue_;
    std::size_t written_ = 0;  ///< Bytes at the front of `queue_` that are written.
    std::size_t dropped_ = 0;  ///< Dropped lines since the queue was last empty.
    bool broken_ = false;      ///< The reader is gone.
    /// An epoll set with the target in it. Asio watches the set, because it would make the target
    /// itself non-blocking.
    std::optional<ReadableWatch> writable_;
};

}  // namespace regroup::agent
