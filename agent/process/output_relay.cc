// SPDX-License-Identifier: Apache-2.0
#include "agent/process/output_relay.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <deque>
#include <map>
#include <string_view>
#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "agent/process/terminal_stream.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;

constexpr std::size_t kReadBytes = std::size_t{64} << 10U;
// After this much one worker's pipe gives way to the others'.
constexpr std::size_t kTurnBytes = std::size_t{256} << 10U;
// A pipe holds 64 KiB; more than this after a worker's end comes from a descendant that goes on.
constexpr std::size_t kDrainBytesMax = std::size_t{4} << 20U;
constexpr std::size_t kLineBytesMax = std::size_t{64} << 10U;
constexpr std::size_t kKeptLines = 20;
constexpr std::size_t kKeptLineBytes = 400;
constexpr Duration kFlushLimit = std::chrono::seconds(1);

/// A file that is made when the first byte arrives and given up at the first error.
class OutputFile {
   public:
    OutputFile(std::string path, OutputRelay& relay) : path_(std::move(path)), relay_(relay) {}
    ~OutputFile() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }
    OutputFile(const OutputFile&) = delete;
    OutputFile& operator=(const OutputFile&) = delete;

    void append(std::string_view bytes) {
        if (path_.empty() || given_up_) {
            return;
        }
        if (fd_ < 0) {
            fd_ = ::open(path_.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
        }
        while (!bytes.empty()) {
            const ssize_t count = fd_ < 0 ? -1 : ::write(fd_, bytes.data(), bytes.size());
            if (count < 0 && errno == EINTR) {
                continue;
            }
            if (count < 0) {
                given_up_ = true;
                relay_.say(system_failure("cannot write " + path_, errno).detail +
                           "; this worker's further output is only shown here");
                return;
            }
            bytes.remove_prefix(static_cast<std::size_t>(count));
        }
    }

    [[nodiscard]] const std::string& path() const { return path_; }

   private:
    std::string path_;
    OutputRelay& relay_;
    int fd_ = -1;
    bool given_up_ = false;
};

/// One of a worker's two streams, from its pipe to the terminal and its file.
class Stream {
   public:
    Stream(asio::io_context& io, int read_fd, std::string label, std::string path,
           OutputRelay& relay, TerminalStream& terminal)
        : pipe_(io, read_fd),
          prefix_("[" + std::move(label) + "] "),
          file_(std::move(path), relay),
          terminal_(terminal) {}

    static void watch(const std::shared_ptr<Stream>& self) {
        if (!self->pipe_.is_open()) {
            return;
        }
        self->pipe_.async_wait(asio::posix::stream_descriptor::wait_read,
                               [self](boost::system::error_code error) {
                                   if (!error && self->read(kTurnBytes)) {
                                       watch(self);
                                   }
                               });
    }

    /// Reads up to about `bytes_max`, without waiting. False at the end of the stream.
    bool read(std::size_t bytes_max) {
        static std::array<char, kReadBytes> buffer;  // One thread: shared by all streams.
        std::string shown;
        std::size_t total = 0;
        bool open = pipe_.is_open();
        while (open && total < bytes_max) {
            const ssize_t count =
                ::read(pipe_.native_handle(), buffer.data(), buffer.size());
            if (count < 0 && errno == EINTR) {
                continue;
            }
            if (count < 0) {
                break;
            }
            if (count == 0) {
                close();
                open = false;
                break;
            }
            const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
            total += bytes.size();
            file_.append(bytes);
            split(bytes, shown);
        }
        if (!shown.empty()) {
            terminal_.write(shown);
        }
        return open;
    }

    /// Shows an unfinished last line as a line.
    void finish() {
        if (!line_.empty()) {
            std::string shown;
            end_line(shown);
            terminal_.write(shown);
        }
    }

    void close() {
        boost::system::error_code ignored;
        pipe_.close(ignored);
    }

    [[nodiscard]] const std::deque<std::string>& kept() const { return kept_; }
    [[nodiscard]] const std::string& unfinished() const { return line_; }
    [[nodiscard]] const std::string& path() const { return file_.path(); }

   private:
    void split(std::string_view bytes, std::string& shown) {
        while (!bytes.empty()) {
            const std::size_t newline = bytes.find('\n');
            const std::size_t room = kLineBytesMax - line_.size();
            const std::size_t take = std::min({newline, room, bytes.size()});
            line_.append(bytes.substr(0, take));
            bytes.remove_prefix(take);
            if (take == newline) {
                bytes.remove_prefix(1);
                end_line(shown);
            } else if (line_.size() == kLineBytesMax) {
                end_line(shown);
            }
        }
    }

    void end_line(std::string& shown) {
        shown += prefix_;
        shown += line_;
        shown += '\n';
        kept_.push_back(line_.substr(0, kKeptLineBytes));
        if (kept_.size() > kKeptLines) {
            kept_.pop_front();
        }
        line_.clear();
    }

    asio::posix::stream_descriptor pipe_;
    std::string prefix_;
    OutputFile file_;
    TerminalStream& terminal_;
    std::string line_;
    std::deque<std::string> kept_;
};

struct Worker {
    OutputRelay::Pipes child_ends;
    std::shared_ptr<Stream> out;
    std::shared_ptr<Stream> err;
};

Result<std::pair<int, int>> make_pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
        return system_failure("cannot make a pipe for a worker's output", errno);
    }
    ::fcntl(ends[0], F_SETFL, O_NONBLOCK);  // Of our end only.
    return std::pair(ends[0], ends[1]);
}

}  // namespace

struct OutputRelay::Impl {
    explicit Impl(asio::io_context& io_in) : io(io_in), out(io_in, 1), err(io_in, 2) {}

    asio::io_context& io;
    TerminalStream out;
    TerminalStream err;
    std::map<std::uint32_t, Worker> workers;
};

OutputRelay::OutputRelay(asio::io_context& io) : impl_(std::make_unique<Impl>(io)) {}

OutputRelay::~OutputRelay() {
    close_all();
    impl_->out.flush(kFlushLimit);
    impl_->err.flush(kFlushLimit);
}

void OutputRelay::say(const std::string& line) { say_text("regroup: " + line + "\n"); }

void OutputRelay::say_text(const std::string& text) { impl_->err.write(text); }

Result<OutputRelay::Pipes> OutputRelay::open(std::uint32_t local_rank, const std::string& label,
                                             const std::string& file_stem) {
    const Result<std::pair<int, int>> out = make_pipe();
    if (!out) {
        return out.error();
    }
    const Result<std::pair<int, int>> err = make_pipe();
    if (!err) {
        ::close(out->first);
        ::close(out->second);
        return err.error();
    }
    const auto path = [&](const char* ending) {
        return file_stem.empty() ? std::string() : file_stem + ending;
    };
    Worker worker;
    worker.child_ends = {out->second, err->second};
    worker.out = std::make_shared<Stream>(impl_->io, out->first, label, path(".out"), *this,
                                          impl_->out);
    worker.err = std::make_shared<Stream>(impl_->io, err->first, label, path(".err"), *this,
                                          impl_->err);
    const Pipes pipes = worker.child_ends;
    impl_->workers.insert_or_assign(local_rank, std::move(worker));
    return pipes;
}

void OutputRelay::started(std::uint32_t local_rank) {
    Worker& worker = impl_->workers.at(local_rank);
    ::close(worker.child_ends.stdout_fd);
    ::close(worker.child_ends.stderr_fd);
    worker.child_ends = {};
    Stream::watch(worker.out);
    Stream::watch(worker.err);
}

void OutputRelay::drain(std::uint32_t local_rank) {
    if (const auto found = impl_->workers.find(local_rank); found != impl_->workers.end()) {
        found->second.out->read(kDrainBytesMax);
        found->second.err->read(kDrainBytesMax);
    }
}

void OutputRelay::close_all() {
    for (auto& [local_rank, worker] : impl_->workers) {
        for (const auto& stream : {worker.out, worker.err}) {
            stream->read(kDrainBytesMax);
            stream->finish();
            stream->close();
        }
    }
    impl_->workers.clear();
}

std::string OutputRelay::last_output(std::uint32_t local_rank) const {
    const auto found = impl_->workers.find(local_rank);
    if (found == impl_->workers.end()) {
        return "";
    }
    std::string text;
    const Worker& worker = found->second;
    for (const auto& stream : {worker.err, worker.out}) {
        for (const std::string& line : stream->kept()) {
            text += line + "\n";
        }
        if (!stream->unfinished().empty()) {
            text += stream->unfinished().substr(0, kKeptLineBytes) + "\n";
        }
        if (!text.empty()) {
            break;
        }
    }
    return text;
}

std::string OutputRelay::last_output_file(std::uint32_t local_rank) const {
    const auto found = impl_->workers.find(local_rank);
    if (found == impl_->workers.end()) {
        return "";
    }
    const Stream& err = *found->second.err;
    const bool wrote_errors = !err.kept().empty() || !err.unfinished().empty();
    return wrote_errors ? err.path() : found->second.out->path();
}

}  // namespace regroup::agent
