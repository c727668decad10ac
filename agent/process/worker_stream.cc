// SPDX-License-Identifier: Apache-2.0
#include "agent/process/worker_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <sys/ioctl.h>

namespace regroup::agent {
namespace {

/// What one worker may bring in before the others get their turn.
constexpr std::size_t kReadBytesMax = std::size_t{16} << 10;
constexpr std::size_t kTailLinesMax = 20;
constexpr std::size_t kTailLineBytesMax = 500;

/// Not open on failure, with errno set.
UniqueFd open_log(const std::string& path) {
    const int flags = O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC;
    constexpr mode_t kMode = 0666;  // What the umask leaves of it.
    UniqueFd file(::open(path.c_str(), flags, kMode));
    if (!file && errno == ENOENT) {
        std::error_code ignored;  // The second attempt tells.
        std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
        file = UniqueFd(::open(path.c_str(), flags, kMode));
    }
    return file;
}

}  // namespace

WorkerStream::WorkerStream(const Clock& clock, LineWriter& terminal, Options options)
    : clock_(clock), terminal_(terminal), options_(std::move(options)) {}

Result<UniqueFd> WorkerStream::open(boost::asio::io_context& io) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) < 0) {
        return system_failure("cannot open a pipe for a worker's output", errno);
    }
    UniqueFd write_end(ends[1]);
    auto watch = ReadableWatch::open(io, UniqueFd(ends[0]), [this] { handle_readable(); });
    if (!watch) {
        return watch.error();
    }
    pipe_.emplace(*std::move(watch));
    pipe_->arm();
    return write_end;
}

void WorkerStream::open_file() {
    if (file_ || options_.path.empty()) {
        return;
    }
    file_ = open_log(options_.path);
    if (!file_) {
        options_.on_file_error(options_.path, errno);
    }
}

void WorkerStream::handle_readable() {
    if (read_some(kReadBytesMax) != 0) {
        pipe_->arm();
        return;
    }
    drain();
    pipe_.reset();
}

long WorkerStream::read_some(std::size_t bytes_max) {
    std::array<char, kReadBytesMax> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const long count = ::read(pipe_->fd(), buffer.data(), std::min(bytes_max, buffer.size()));
    if (count > 0) {
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
        keep(bytes);
        splitter_.feed(bytes, clock_.now(), [this](std::string_view line) { show(line); });
        show_batch();
    }
    return count;
}

void WorkerStream::drain() {
    int left = 0;
    if (pipe_) {
        ::ioctl(pipe_->fd(), FIONREAD, &left);
    }
    while (left > 0) {
        const long count = read_some(static_cast<std::size_t>(left));
        if (count <= 0) {
            break;
        }
        left -= static_cast<int>(count);
    }
    splitter_.finish([this](std::string_view line) { show(line); });
    show_batch();
}

void WorkerStream::keep(std::string_view bytes) {
    open_file();
    while (file_ && !bytes.empty()) {
        const long count = ::write(file_.get(), bytes.data(), bytes.size());
        if (count >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
        } else if (errno != EINTR) {
            options_.on_file_error(options_.path, errno);
            return;
        }
    }
}

void WorkerStream::show(std::string_view line) {
    batch_.append(options_.prefix).append(line).push_back('\n');
    ++batch_lines_;
    if (tail_.size() == kTailLinesMax) {
        tail_.pop_front();
    }
    tail_.emplace_back(line.substr(0, kTailLineBytesMax));
}

void WorkerStream::show_batch() {
    if (batch_lines_ > 0) {
        terminal_.write(batch_, batch_lines_);
        batch_.clear();
        batch_lines_ = 0;
    }
}

std::string WorkerStream::tail() const {
    std::string text;
    for (const std::string& line : tail_) {
        text += line + '\n';
    }
    return text;
}

}  // namespace regroup::agent
