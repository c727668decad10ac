// SPDX-License-Identifier: Apache-2.0
#include "agent/process/line_writer.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <termios.h>
#include <unistd.h>
#include <utility>

#include <climits>

#include "agent/process/status_line.h"

namespace regroup::agent {
namespace {

/// Bound of the queue for the agent's own lines.
constexpr std::size_t kOwnQueueBytesMax = 2 * LineWriter::kQueueBytesMax;
/// Written bytes are removed from the queue after this many.
constexpr std::size_t kForgetBytes = std::size_t{256} << 10;
/// A terminal that is ready for writing usually takes this much.
constexpr std::size_t kTerminalPieceBytes = 256;

bool is_writable(int fd, int timeout_ms) {
    pollfd entry{.fd = fd, .events = POLLOUT, .revents = 0};
    return ::poll(&entry, 1, timeout_ms) > 0;
}

/// Opens the terminal or pipe of `fd` again.
UniqueFd open_anew(int fd) {
    constexpr int kFlags = O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    UniqueFd own(::open(path.c_str(), kFlags));
    if (!own && ::isatty(fd) == 1 && ::tcgetsid(fd) == ::getsid(0)) {
        // After su(1) the terminal belongs to another user, but /dev/tty can be opened.
        own = UniqueFd(::open("/dev/tty", kFlags));
    }
    return own;
}

}  // namespace

LineWriter::LineWriter(boost::asio::io_context& io, int fd, std::string consolation)
    : io_(io), fd_(fd), consolation_(std::move(consolation)) {}

void LineWriter::write(std::string_view lines, std::size_t line_count, const void* stream) {
    // After a drop, all lines are dropped until the queue is empty: one gap, not a thousand.
    if (dropped_ > 0 || queue_.size() - written_ + lines.size() > kQueueBytesMax) {
        dropped_ += line_count;
        return;
    }
    accept_lines(lines, stream);
}

void LineWriter::write_partial(std::string_view line, const void* stream) {
    if (dropped_ > 0 || queue_.size() - written_ + line.size() > kQueueBytesMax) {
        return;  // It comes with its end.
    }
    if (!std::exchange(status_, "").empty()) {
        accept(kEraseRow);
    }
    const std::string_view more = go_on(line, stream);
    partial_ = line;
    partial_of_ = stream;
    accept(more);
}

std::string_view LineWriter::go_on(std::string_view text, const void* stream) {
    const std::string before = std::exchange(partial_, "");
    if (before.empty()) {
        return text;
    }
    if (stream == partial_of_ && text.starts_with(before)) {
        return text.substr(before.size());
    }
    accept("\n");
    return text;
}

void LineWriter::write_own(std::string_view lines, std::size_t line_count) {
    if (queue_.size() - written_ + lines.size() > kOwnQueueBytesMax) {
        dropped_ += line_count;
        return;
    }
    accept_lines(lines);
}

bool LineWriter::show_status(const std::string& text) {
    if (!status_.empty() && text.empty()) {
        status_.clear();
        accept(kEraseRow);
        return true;
    }
    // A terminal that is late gets no more than its lines.
    if (!is_own_terminal(fd_) || !queue_.empty() || !partial_.empty()) {
        return false;
    }
    if (std::string row = row_of(fd_, text); row != status_) {
        status_ = std::move(row);
        accept(kEraseRow + status_);
    }
    return true;
}

void LineWriter::accept_lines(std::string_view lines, const void* stream) {
    lines = go_on(lines, stream);
    if (status_.empty()) {
        accept(lines);
    } else {
        accept(kEraseRow + std::string(lines) + status_);
    }
}

void LineWriter::accept(std::string_view bytes) {
    if (way_ == Way::unknown) {
        choose_way();
    }
    // Limit the memory for a reader that is always a little late.
    if (written_ >= kForgetBytes) {
        queue_.erase(0, written_);
        written_ = 0;
    }
    const bool was_idle = queue_.empty();
    queue_.append(bytes);
    if (was_idle || !writable_) {
        pump();
    }
}

void LineWriter::choose_way() {
    struct stat status{};
    ::fstat(fd_, &status);
    way_ = Way::direct;
    if (S_ISSOCK(status.st_mode)) {
        way_ = Way::socket;
    } else if (S_ISFIFO(status.st_mode) || ::isatty(fd_) == 1) {
        own_ = open_anew(fd_);
        way_ = own_ ? Way::own_open_file : Way::pieces;
        piece_bytes_ = S_ISFIFO(status.st_mode) ? PIPE_BUF : kTerminalPieceBytes;
    }
}

long LineWriter::write_some(std::string_view bytes) {
    switch (way_) {
        case Way::socket:
            return ::send(fd_, bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
        case Way::pieces:
            if (!is_writable(fd_, 0)) {
                errno = EAGAIN;
                return -1;
            }
            return ::write(fd_, bytes.data(), std::min(bytes.size(), piece_bytes_));
        default:
            return ::write(target(), bytes.data(), bytes.size());
    }
}

void LineWriter::pump() {
    for (;;) {
        if (written_ == queue_.size()) {
            queue_.clear();
            written_ = 0;
            if (queue_.capacity() > kForgetBytes) {
                queue_.shrink_to_fit();
            }
            if (dropped_ == 0 || broken_) {
                return;
            }
            queue_ = "regroup: " + std::to_string(dropped_) +
                     " lines were dropped here: nobody took them in time" + consolation_ + "\n";
            dropped_ = 0;
        }
        const long count = broken_ ? -1 : write_some(std::string_view(queue_).substr(written_));
        if (count >= 0) {
            written_ += static_cast<std::size_t>(count);
        } else if (!broken_ && errno == EAGAIN) {
            await_writable();
            return;
        } else if (broken_ || errno != EINTR) {
            // A full disk may get room again. A reader that has gone away does not come back.
            broken_ = broken_ || errno == EPIPE || errno == EIO || errno == EBADF;
            written_ = queue_.size();
            dropped_ = 0;
        }
    }
}

void LineWriter::await_writable() {
    if (writable_) {
        epoll_event again{.events = EPOLLOUT | EPOLLONESHOT, .data = {}};
        ::epoll_ctl(writable_->fd(), EPOLL_CTL_MOD, target(), &again);
    } else {
        UniqueFd set(::epoll_create1(EPOLL_CLOEXEC));
        epoll_event first{.events = EPOLLOUT | EPOLLONESHOT, .data = {}};
        if (!set || ::epoll_ctl(set.get(), EPOLL_CTL_ADD, target(), &first) < 0) {
            return;  // The next line tries again.
        }
        auto watch = ReadableWatch::open(io_, std::move(set), [this] {
            epoll_event event{};
            ::epoll_wait(writable_->fd(), &event, 1, 0);
            pump();
        });
        if (!watch) {
            return;
        }
        writable_.emplace(*std::move(watch));
    }
    writable_->arm();
}

bool LineWriter::flush(const Clock& clock, Instant deadline) {
    constexpr int kPauseMs = 10;
    while (!queue_.empty() && clock.now() < deadline) {
        if (is_writable(target(), kPauseMs)) {
            pump();
        }
    }
    return queue_.empty();
}

}  // namespace regroup::agent
