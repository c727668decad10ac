// SPDX-License-Identifier: Apache-2.0
#include "agent/process/output_relay.h"

#include <csignal>
#include <cstring>
#include <sys/stat.h>

#include "agent/process/line_writer.h"
#include "agent/process/worker_stream.h"

namespace regroup::agent {
namespace {

/// Whether both are the same terminal, pipe or socket. (Two openings of one file are two places.)
bool lead_to_same_place(int first, int second) {
    struct stat one{};
    struct stat other{};
    return ::fstat(first, &one) == 0 && ::fstat(second, &other) == 0 && !S_ISREG(one.st_mode) &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

struct OutputRelay::Worker {
    WorkerStream out;
    WorkerStream err;
};

OutputRelay::OutputRelay(boost::asio::io_context& io, const Clock& clock,
                         OutputRelayOptions options)
    : io_(io), clock_(clock), options_(options) {
    ::signal(SIGPIPE, SIG_IGN);
    const std::string consolation = options_.files ? "; the files of the ranks have them" : "";
    if (!lead_to_same_place(options_.stdout_fd, options_.stderr_fd)) {
        stdout_ = std::make_unique<LineWriter>(io_, options_.stdout_fd, consolation);
    }
    stderr_ = std::make_unique<LineWriter>(io_, options_.stderr_fd, consolation);
}

OutputRelay::~OutputRelay() {
    close_all();
}

Result<OutputRelay::Pipes> OutputRelay::open(std::uint32_t local_rank, const std::string& label,
                                             const std::string& file_stem) {
    const auto stream_options = [&](const char* suffix) {
        return WorkerStream::Options{.prefix = "[" + label + "] ",
                                     .path = file_stem.empty() ? "" : file_stem + suffix,
                                     .on_file_error = [this](const std::string& file, int error) {
                                         report_file_error(file, error);
                                     }};
    };
    auto& slot = workers_[local_rank];
    slot.reset(new Worker{
        .out = WorkerStream(clock_, stdout_ ? *stdout_ : *stderr_, stream_options(".out")),
        .err = WorkerStream(clock_, *stderr_, stream_options(".err"))});
    auto out = slot->out.open(io_);
    if (!out) {
        return out.error();
    }
    auto err = slot->err.open(io_);
    if (!err) {
        return err.error();
    }
    return Pipes{.stdout_fd = *std::move(out), .stderr_fd = *std::move(err)};
}

void OutputRelay::open_files() {
    for (const auto& [local_rank, worker] : workers_) {
        worker->out.open_file();
        worker->err.open_file();
    }
}

void OutputRelay::drain(std::uint32_t local_rank) {
    if (const auto found = workers_.find(local_rank); found != workers_.end()) {
        found->second->out.drain();
        found->second->err.drain();
    }
}

const WorkerStream* OutputRelay::last_written(std::uint32_t local_rank) const {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) {
        return nullptr;
    }
    const Worker& worker = *found->second;
    return worker.err.tail().empty() && !worker.out.tail().empty() ? &worker.out : &worker.err;
}

std::string OutputRelay::last_output(std::uint32_t local_rank) const {
    const WorkerStream* stream = last_written(local_rank);
    return stream != nullptr ? stream->tail() : "";
}

std::string OutputRelay::last_output_file(std::uint32_t local_rank) const {
    const WorkerStream* stream = last_written(local_rank);
    return stream != nullptr ? stream->path() : "";
}

void OutputRelay::close_all() {
    for (const auto& [local_rank, worker] : workers_) {
        worker->out.drain();
        worker->err.drain();
    }
    workers_.clear();
}

void OutputRelay::say(std::string_view line) {
    say_text("regroup: " + std::string(line) + "\n");
}

void OutputRelay::say_text(std::string_view lines) {
    stderr_->write_own(lines);
}

bool OutputRelay::flush(Instant deadline) {
    const bool shown = !stdout_ || stdout_->flush(clock_, deadline);
    return stderr_->flush(clock_, deadline) && shown;
}

void OutputRelay::report_file_error(const std::string& path, int error_number) {
    if (!std::exchange(file_error_said_, true)) {
        say("cannot write to '" + path + "': " + std::strerror(error_number) +
            "; output is lost to the files for as long as that lasts");
    }
}

}  // namespace regroup::agent
