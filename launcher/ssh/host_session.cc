// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/host_session.h"

#include <array>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/write.hpp>

namespace regroup::launcher::ssh {
namespace {

namespace asio = boost::asio;

// Limit for one read, so that all hosts get their turn.
constexpr std::size_t kReadBytesMax = std::size_t{16} << 10;

struct Pipe {
    UniqueFd read_end;
    UniqueFd write_end;
};

Result<Pipe> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) < 0) {
        return system_failure("cannot open a pipe for a connection", errno);
    }
    return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

}  // namespace

HostSession::HostSession(asio::io_context& io, const Clock& clock, std::string word,
                         Handlers handlers)
    : io_(io), clock_(clock), word_(std::move(word)), handlers_(std::move(handlers)), orders_(io) {}

HostSession::~HostSession() = default;

Result<void> HostSession::start(agent::LinuxLauncher& launcher,
                                const std::vector<std::string>& command) {
    Result<Pipe> in = make_pipe();
    Result<Pipe> out = make_pipe();
    Result<Pipe> err = make_pipe();
    for (const Result<Pipe>* pipe : {&in, &out, &err}) {
        if (!*pipe) {
            return pipe->error();
        }
    }
    agent::ProcessSpec spec;
    spec.executable = command.front();
    spec.arguments = command;
    spec.environment = agent::own_environment();
    spec.stdin_fd = in->read_end.get();
    spec.stdout_fd = out->write_end.get();
    spec.stderr_fd = err->write_end.get();
    Result<agent::ChildProcess> client = launcher.launch(spec);
    if (!client) {
        return client.error();
    }
    for (const auto& [stream, pipe] : {std::pair(&out_, &*out), std::pair(&err_, &*err)}) {
        if (const Result<void> opened = open(*stream, std::move(pipe->read_end)); !opened) {
            return opened.error();
        }
    }
    client_.emplace(*std::move(client));
    orders_.assign(in->write_end.release());
    orders_.non_blocking(true);
    client_->async_wait([this](agent::ExitStatus status) {
        for (Stream* stream : {&out_, &err_}) {
            drain(*stream);
        }
        unsent_.clear();
        boost::system::error_code ignored;
        orders_.close(ignored);
        client_.reset();
        handlers_.on_end(status);
    });
    return {};
}

void HostSession::send(std::string frame) {
    if (!orders_.is_open()) {
        return;
    }
    unsent_.push_back(std::move(frame));
    if (unsent_.size() == 1) {
        write_next();
    }
}

void HostSession::write_next() {
    asio::async_write(orders_, asio::buffer(unsent_.front()),
                      [this](const boost::system::error_code& error, std::size_t) {
                          if (error == asio::error::operation_aborted || unsent_.empty()) {
                              return;
                          }
                          unsent_.pop_front();
                          if (error) {
                              unsent_.clear();  // The client is about to end.
                          } else if (!unsent_.empty()) {
                              write_next();
                          }
                      });
}

void HostSession::kill() {
    if (client_) {
        client_->signal_group(SIGKILL);
    }
}

Result<void> HostSession::open(Stream& stream, UniqueFd read_end) {
    auto watch = agent::ReadableWatch::open(io_, std::move(read_end), [this, &stream] {
        if (read_some(stream)) {
            stream.pipe->arm();
        }
    });
    if (!watch) {
        return watch.error();
    }
    stream.pipe.emplace(*std::move(watch));
    stream.pipe->arm();
    return {};
}

bool HostSession::read_some(Stream& stream) {
    std::array<char, kReadBytesMax> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    const ssize_t count = ::read(stream.pipe->fd(), buffer.data(), buffer.size());
    if (count <= 0) {
        return count < 0 && (errno == EAGAIN || errno == EINTR);
    }
    const std::string_view bytes(buffer.data(), static_cast<std::size_t>(count));
    deliver(stream, [&](const agent::LineSplitter::Sink& sink) {
        stream.splitter.feed(bytes, clock_.now(), sink);
    });
    return true;
}

void HostSession::drain(Stream& stream) {
    int left = 0;
    ::ioctl(stream.pipe->fd(), FIONREAD, &left);
    while (left > 0 && read_some(stream)) {
        left -= static_cast<int>(kReadBytesMax);
    }
    deliver(stream, [&](const agent::LineSplitter::Sink& sink) { stream.splitter.finish(sink); });
    stream.pipe.reset();
}

// Reports and lines in the order in which they came.
void HostSession::deliver(const Stream& stream,
                          const std::function<void(const agent::LineSplitter::Sink&)>& split) {
    const bool from_stderr = &stream == &err_;
    std::string lines;
    std::size_t count = 0;
    const auto flush = [&] {
        if (count > 0) {
            handlers_.on_lines(from_stderr, lines, std::exchange(count, 0));
            lines.clear();
        }
    };
    split([&](std::string_view line) {
        if (const auto report = from_stderr ? std::nullopt : parse_line(word_, line)) {
            flush();
            handlers_.on_report(*report);
            return;
        }
        lines.append(line).append("\n");
        ++count;
    });
    flush();
}

}  // namespace regroup::launcher::ssh
