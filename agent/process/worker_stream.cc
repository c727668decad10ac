// SPDX-License-Identifier: Apache-2.0
#include "agent/process/worker_stream.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <sys/ioctl.h>
#include <sys/stat.h>

#include "agent/process/start_failure.h"
#include "rendezvous/files/own_file.h"

namespace regroup::agent {
namespace {

/// Limit for one read, so that all workers get their turn.
constexpr std::size_t kReadBytesMax = std::size_t{16} << 10;
/// How long the end of a line may take before its beginning is shown.
constexpr std::chrono::milliseconds kRestTime{100};
constexpr std::size_t kTailLinesMax = 20;
constexpr std::size_t kTailLineBytesMax = 500;

Result<UniqueFd> open_log(const std::string& path) {
    constexpr int kFlags = O_WRONLY | O_CREAT | O_APPEND;
    Result<UniqueFd> file = files::open_own(path, kFlags);
    if (!file) {
        // Mostly the folder does not exist yet.
        const auto folder = std::filesystem::path(path).parent_path();
        if (const Result<void> made = files::make_own_folder(folder); !made) {
            return made.error();
        }
        file = files::open_own(path, kFlags);
    }
    return file;
}

}  // namespace

WorkerStream::WorkerStream(const Clock& clock, LineWriter& terminal, StreamPlan plan,
                           std::uint64_t& bytes, OnFileError on_file_error)
    : clock_(clock),
      terminal_(terminal),
      plan_(std::move(plan)),
      bytes_(bytes),
      on_file_error_(std::move(on_file_error)) {}

Result<UniqueFd> WorkerStream::open(boost::asio::io_context& io) {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) < 0) {
        return start_failure("cannot open a pipe for a worker's output", errno);
    }
    UniqueFd write_end(ends[1]);
    auto watch = ReadableWatch::open(io, UniqueFd(ends[0]), [this] { handle_readable(); });
    if (!watch) {
        return watch.error();
    }
    pipe_.emplace(*std::move(watch));
    pipe_->arm();
    io_ = &io;
    return write_end;
}

void WorkerStream::replan(StreamPlan plan) {
    drain();
    file_.reset();
    filter_file_.reset();
    filter_tried_ = false;
    plan_ = std::move(plan);
}

void WorkerStream::open_file() {
    if (file_ || plan_.path.empty()) {
        return;
    }
    Result<UniqueFd> file = open_log(plan_.path);
    if (!file) {
        on_file_error_(plan_.path, file.error().detail);
        return;
    }
    file_ = *std::move(file);
    struct stat status{};
    file_bytes_ =
        ::fstat(file_.get(), &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
    if (file_bytes_ != 0 && !plan_.launch_line.empty()) {
        // The last line of the other launch may have no end.
        append("\n" + plan_.launch_line + "\n");
    }
}

void WorkerStream::append(std::string_view bytes) {
    while (file_ && !bytes.empty()) {
        const long count = ::write(file_.get(), bytes.data(), bytes.size());
        if (count >= 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
            file_bytes_ += static_cast<std::uint64_t>(count);
        } else if (errno != EINTR) {
            on_file_error_(plan_.path, system_failure("write", errno).detail);
            return;
        }
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
        bytes_ += static_cast<std::uint64_t>(count);
        const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
        keep(bytes);
        splitter_.feed(bytes, clock_.now(), [this](std::string_view line) { show(line); });
        show_batch();
        await_rest();
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
    if (plan_.file_bytes_max != 0 && file_bytes_ != 0 &&
        file_bytes_ + bytes.size() > plan_.file_bytes_max) {
        rotate();
    }
    append(bytes);
}

void WorkerStream::rotate() {
    if (::rename(plan_.path.c_str(), (plan_.path + ".1").c_str()) != 0) {
        on_file_error_(plan_.path, system_failure("rename", errno).detail);
        return;  // A file that is too long is better than a lost one.
    }
    file_.reset();
    open_file();
}

void WorkerStream::keep_filtered(std::string_view line) {
    const bool wanted =
        std::any_of(plan_.needles.begin(), plan_.needles.end(),
                    [line](const std::string& needle) { return line.find(needle) != line.npos; });
    if (!wanted) {
        return;
    }
    if (!filter_file_ && !std::exchange(filter_tried_, true)) {
        Result<UniqueFd> file = open_log(plan_.filter_path);
        if (file) {
            filter_file_ = *std::move(file);
        } else {
            on_file_error_(plan_.filter_path, file.error().detail);
        }
    }
    // One write for each line, because the streams of all ranks share the file.
    const std::string text = plan_.prefix + std::string(line) + "\n";
    if (filter_file_ && ::write(filter_file_.get(), text.data(), text.size()) < 0) {
        on_file_error_(plan_.filter_path, system_failure("write", errno).detail);
    }
}

void WorkerStream::show(std::string_view line) {
    if (plan_.shown) {
        batch_.append(plan_.prefix).append(line).push_back('\n');
        ++batch_lines_;
    }
    if (!plan_.needles.empty()) {
        keep_filtered(line);
    }
    if (tail_.size() == kTailLinesMax) {
        tail_.pop_front();
    }
    tail_.emplace_back(line.substr(0, kTailLineBytesMax));
}

void WorkerStream::show_batch() {
    if (batch_lines_ > 0) {
        terminal_.write(batch_, batch_lines_, this);
        batch_.clear();
        batch_lines_ = 0;
    }
}

// A prompt has no line end, and its reader waits for an answer.
void WorkerStream::await_rest() {
    if (!plan_.shown || !plan_.shows_partial || rest_timer_ || splitter_.partial().empty()) {
        return;
    }
    rest_timer_ = std::make_shared<boost::asio::steady_timer>(*io_, kRestTime);
    rest_timer_->async_wait(
        [this, weak = std::weak_ptr(rest_timer_)](const boost::system::error_code& error) {
            if (!error && weak.lock()) {
                rest_timer_.reset();
                show_partial();
            }
        });
}

void WorkerStream::show_partial() {
    if (const std::string_view partial = splitter_.partial(); !partial.empty()) {
        terminal_.write_partial(plan_.prefix + std::string(partial), this);
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
