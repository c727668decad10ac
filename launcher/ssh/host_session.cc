// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/host_session.h"

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/read.hpp>
#include <boost/asio/write.hpp>

#include "agent/process/unique_fd.h"
#include "launcher/ssh/environment.h"

namespace regroup::launcher::ssh {
namespace {

namespace asio = boost::asio;

constexpr std::size_t kDrainBytesMax = std::size_t{1} << 20;

struct Pipe {
    agent::UniqueFd read_end;
    agent::UniqueFd write_end;
};

Result<Pipe> make_pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) < 0) {
        return system_failure("cannot open a pipe for a connection", errno);
    }
    return Pipe{agent::UniqueFd(ends[0]), agent::UniqueFd(ends[1])};
}

}  // namespace

HostSession::HostSession(asio::io_context& io, const Clock& clock, std::string word,
                         Handlers handlers)
    : clock_(clock),
      word_(std::move(word)),
      handlers_(std::move(handlers)),
      orders_(io),
      out_(io),
      err_(io) {}

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
    spec.environment = own_environment();
    spec.stdin_fd = in->read_end.get();
    spec.stdout_fd = out->write_end.get();
    spec.stderr_fd = err->write_end.get();
    Result<agent::ChildProcess> client = launcher.launch(spec);
    if (!client) {
        return client.error();
    }
    client_.emplace(*std::move(client));
    orders_.assign(in->write_end.release());
    orders_.non_blocking(true);
    out_.pipe.assign(out->read_end.release());
    err_.pipe.assign(err->read_end.release());
    read(out_);
    read(err_);
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

void HostSession::read(Stream& stream) {
    stream.pipe.async_read_some(
        asio::buffer(stream.buffer),
        [this, &stream](const boost::system::error_code& error, std::size_t count) {
            if (error == asio::error::operation_aborted) {
                return;
            }
            take(stream, {stream.buffer.data(), count});
            if (!error) {
                read(stream);
            }
        });
}

void HostSession::drain(Stream& stream) {
    boost::system::error_code error;
    stream.pipe.non_blocking(true, error);
    for (std::size_t total = 0; !error && total < kDrainBytesMax;) {
        const std::size_t count = stream.pipe.read_some(asio::buffer(stream.buffer), error);
        take(stream, {stream.buffer.data(), count});
        total += count;
    }
    deliver(stream, [&](const agent::LineSplitter::Sink& sink) { stream.splitter.finish(sink); });
    stream.pipe.close(error);
}

void HostSession::take(Stream& stream, std::string_view bytes) {
    if (!bytes.empty()) {
        deliver(stream, [&](const agent::LineSplitter::Sink& sink) {
            stream.splitter.feed(bytes, clock_.now(), sink);
        });
    }
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
