// SPDX-License-Identifier: Apache-2.0
#include "agent/process/terminal_stream.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>

#include <boost/asio/posix/stream_descriptor.hpp>

namespace regroup::agent {

namespace {

namespace asio = boost::asio;

constexpr std::size_t kQueueBytesMax = std::size_t{1} << 20U;
constexpr int kFlushPollMs = 20;

// A descriptor of our own for the same terminal or pipe, or -1 where `fd` itself will do.
int reopen_without_blocking(int fd) {
    struct stat status {};
    if (::fstat(fd, &status) != 0 || (!S_ISFIFO(status.st_mode) && !S_ISCHR(status.st_mode))) {
        return -1;
    }
    const std::string path = "/proc/self/fd/" + std::to_string(fd);
    return ::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC);
}

}  // namespace

struct TerminalStream::Impl {
    Impl(asio::io_context& io, int fd_in) : fd(fd_in), own(io) {
        const int reopened = reopen_without_blocking(fd);
        if (reopened >= 0) {
            boost::system::error_code error;
            own.assign(reopened, error);  // Refused for what never blocks, such as /dev/null.
            if (error) {
                ::close(reopened);
            } else {
                fd = reopened;
            }
        }
    }

    // True if everything went out.
    bool push() {
        while (sent < queue.size()) {
            const ssize_t count = ::write(fd, queue.data() + sent, queue.size() - sent);
            if (count < 0 && errno == EINTR) {
                continue;
            }
            if (count < 0 && errno != EAGAIN) {
                sent = queue.size();  // The reader is gone; the files have everything.
                break;
            }
            if (count < 0) {
                return false;
            }
            sent += static_cast<std::size_t>(count);
        }
        queue.clear();
        sent = 0;
        return true;
    }

    static void wait(const std::shared_ptr<Impl>& self) {
        if (self->waiting || !self->own.is_open()) {
            return;
        }
        self->waiting = true;
        self->own.async_wait(asio::posix::stream_descriptor::wait_write,
                             [self](boost::system::error_code error) {
                                 self->waiting = false;
                                 if (error) {
                                     return;
                                 }
                                 if (!self->push()) {
                                     wait(self);
                                 } else if (self->dropped_lines > 0) {
                                     self->report_dropped();
                                     wait(self);
                                 }
                             });
    }

    void report_dropped() {
        queue = "regroup: " + std::to_string(dropped_lines) +
                " lines were not shown because the terminal did not take them; the log files "
                "have them\n";
        dropped_lines = 0;
    }

    int fd;
    asio::posix::stream_descriptor own;
    std::string queue;
    std::size_t sent = 0;
    std::size_t dropped_lines = 0;
    bool waiting = false;
};

TerminalStream::TerminalStream(asio::io_context& io, int fd)
    : impl_(std::make_shared<Impl>(io, fd)) {}

TerminalStream::~TerminalStream() {
    boost::system::error_code ignored;
    impl_->own.close(ignored);
}

void TerminalStream::write(std::string_view lines) {
    Impl& impl = *impl_;
    if (impl.dropped_lines > 0 || impl.queue.size() + lines.size() > kQueueBytesMax) {
        impl.dropped_lines +=
            static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
        return;
    }
    impl.queue.append(lines);
    if (!impl.waiting && !impl.push()) {
        Impl::wait(impl_);
    }
}

void TerminalStream::flush(Duration limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!impl_->push() && std::chrono::steady_clock::now() < deadline) {
        pollfd item{impl_->fd, POLLOUT, 0};
        ::poll(&item, 1, kFlushPollMs);
    }
    if (impl_->queue.empty() && impl_->dropped_lines > 0) {
        impl_->report_dropped();
        impl_->push();
    }
}

}  // namespace regroup::agent
