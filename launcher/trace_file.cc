// SPDX-License-Identifier: Apache-2.0
#include "launcher/trace_file.h"

#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/post.hpp>

#include "rendezvous/files/own_file.h"
#include "rendezvous/view/trace_json.h"

namespace regroup::launcher {

namespace {

/// The thread makes the file of these.
struct Work {
    std::string path;
    rendezvous::TraceSource source;
    std::vector<std::shared_ptr<const std::string>> lines;
};

Result<void> put(const std::string& path, const std::string& text) {
    const Result<int> opened = files::open_own(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!opened) {
        return Failure(opened.error().code, "cannot write " + path + ": " + opened.error().detail);
    }
    std::size_t done = 0;
    int error = 0;
    while (done < text.size() && error == 0) {
        const ssize_t count = ::write(*opened, text.data() + done, text.size() - done);
        error = count < 0 && errno != EINTR ? errno : 0;
        done += count > 0 ? static_cast<std::size_t>(count) : 0;
    }
    ::close(*opened);
    return error == 0 ? Result<void>() : system_failure("cannot write " + path, error);
}

Result<void> put(Work& work) {
    for (const auto& line : work.lines) {
        work.source.lines.push_back(*line);
    }
    const std::string part = work.path + ".part";
    if (Result<void> written = put(part, rendezvous::trace_json(work.source)); !written) {
        ::unlink(part.c_str());
        return written;
    }
    return std::rename(part.c_str(), work.path.c_str()) == 0
               ? Result<void>()
               : system_failure("cannot rename " + part + " to " + work.path, errno);
}

}  // namespace

TraceFile::TraceFile(boost::asio::io_context& io, std::string path, std::string job, Say say)
    : io_(io), path_(std::move(path)), job_(std::move(job)), say_(std::move(say)), timer_(io) {}

void TraceFile::follow(rendezvous::Daemon& daemon) {
    daemon_ = &daemon;
    rendezvous::Daemon::EventSink sink;
    sink.on_event = [this](const std::string& job, const rendezvous::RecordedEvent& event) {
        if (job == job_) {
            add(event.line, event.wall_ms, event.event.at);
        }
    };
    sink.on_restored = [this](const std::string& job, std::int64_t began_ms,
                              const rendezvous::JobHistory& history) {
        if (job != job_) {
            return;
        }
        lines_.clear();
        bytes_ = 0;
        for (const rendezvous::RecordedEvent& event : history.events()) {
            add(event.line, event.wall_ms, event.event.at);
        }
        began_ms_ = began_ms;
    };
    daemon.add_event_sink(std::move(sink));
}

void TraceFile::add(const std::shared_ptr<const std::string>& line, std::int64_t wall_ms,
                    Instant at) {
    if (lines_.empty()) {
        began_ms_ =
            wall_ms -
            std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch()).count();
    }
    bytes_ += line->size();
    lines_.push_back(line);
    while (bytes_ > kBytesMax && lines_.size() > 1) {
        bytes_ -= lines_.front()->size();
        lines_.pop_front();
    }
    arm();
}

void TraceFile::arm() {
    if (std::exchange(is_armed_, true)) {
        return;
    }
    timer_.expires_after(kInterval);
    timer_.async_wait(
        [this, alive = std::weak_ptr(alive_)](const boost::system::error_code& error) {
            if (!error && !alive.expired()) {
                is_armed_ = false;
                write();
            }
        });
}

void TraceFile::write() {
    auto work = std::make_shared<Work>();
    work->path = path_;
    work->source.job = job_;
    work->source.began_ms = began_ms_;
    if (const rendezvous::JobHistory* history = daemon_->history(job_)) {
        work->source.samples = history->samples();
    }
    work->lines.assign(lines_.begin(), lines_.end());
    background_.post([work, executor = io_.get_executor(), this, alive = std::weak_ptr(alive_)] {
        const Result<void> written = put(*work);
        if (written) {
            return;
        }
        boost::asio::post(executor, [this, alive, why = written.error().detail] {
            if (!alive.expired() && !std::exchange(is_told_, true)) {
                say_("--trace: " + why);
            }
        });
    });
}

void TraceFile::finish() {
    timer_.cancel();
    if (daemon_ != nullptr && !lines_.empty()) {
        write();
        background_.drain(files::Background::kEndLimit);
    }
}

}  // namespace regroup::launcher
