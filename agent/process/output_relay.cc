// SPDX-License-Identifier: Apache-2.0
#include "agent/process/output_relay.h"

#include <algorithm>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>

#include "agent/process/line_writer.h"
#include "agent/process/start_failure.h"
#include "agent/process/worker_stream.h"
#include "rendezvous/base/printable.h"

namespace regroup::agent {
namespace {

/// True if both are the same terminal, pipe or socket. Two open files of one path are not.
bool lead_to_same_place(int first, int second) {
    struct stat one{};
    struct stat other{};
    return ::fstat(first, &one) == 0 && ::fstat(second, &other) == 0 && !S_ISREG(one.st_mode) &&
           one.st_dev == other.st_dev && one.st_ino == other.st_ino;
}

}  // namespace

/// Has only the relayed streams.
struct OutputRelay::Worker {
    std::uint64_t bytes = 0;
    std::optional<WorkerStream> out;
    std::optional<WorkerStream> err;

    template <class Act>
    void each(const Act& act) {
        for (std::optional<WorkerStream>* stream : {&out, &err}) {
            if (*stream) {
                act(**stream);
            }
        }
    }
};

OutputRelay::OutputRelay(boost::asio::io_context& io, const Clock& clock,
                         OutputRelayOptions options)
    : io_(io), clock_(clock), options_(std::move(options)) {
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

Result<OutputRelay::Pipes> OutputRelay::open(std::uint32_t local_rank, const StreamPlan& out,
                                             const StreamPlan& err) {
    drain(local_rank);
    auto& slot = workers_[local_rank];
    slot = std::make_unique<Worker>();
    const auto open_stream = [this, &slot](
                                 const StreamPlan& plan, LineWriter& console,
                                 std::optional<WorkerStream>& stream) -> Result<UniqueFd> {
        if (plan.way == StreamPlan::Way::inherited) {
            show_progress("");
            inherits_ = true;
            return UniqueFd();
        }
        if (plan.way == StreamPlan::Way::discarded) {
            UniqueFd null(::open("/dev/null", O_WRONLY | O_CLOEXEC));
            return null ? Result<UniqueFd>(std::move(null))
                        : start_failure("cannot open /dev/null", errno);
        }
        stream.emplace(clock_, console, plan, slot->bytes,
                       [this](const std::string& file, const std::string& reason) {
                           report_file_error(file, reason);
                       });
        return stream->open(io_);
    };
    auto out_fd = open_stream(out, stdout_ ? *stdout_ : *stderr_, slot->out);
    if (!out_fd) {
        return out_fd.error();
    }
    auto err_fd = open_stream(err, *stderr_, slot->err);
    if (!err_fd) {
        return err_fd.error();
    }
    return Pipes{.stdout_fd = *std::move(out_fd), .stderr_fd = *std::move(err_fd)};
}

void OutputRelay::replan(std::uint32_t local_rank, const StreamPlan& out, const StreamPlan& err) {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) {
        return;
    }
    if (found->second->out) {
        found->second->out->replan(out);
    }
    if (found->second->err) {
        found->second->err->replan(err);
    }
}

void OutputRelay::open_files() {
    for (const auto& [local_rank, worker] : workers_) {
        worker->each([](WorkerStream& stream) { stream.open_file(); });
    }
}

void OutputRelay::drain(std::uint32_t local_rank) {
    if (const auto found = workers_.find(local_rank); found != workers_.end()) {
        found->second->each([](WorkerStream& stream) { stream.drain(); });
    }
}

const WorkerStream* OutputRelay::last_written(std::uint32_t local_rank) const {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) {
        return nullptr;
    }
    const Worker& worker = *found->second;
    const bool out_only =
        worker.out && !worker.out->tail().empty() && (!worker.err || worker.err->tail().empty());
    const std::optional<WorkerStream>& stream = out_only ? worker.out : worker.err;
    return stream ? &*stream : nullptr;
}

std::string OutputRelay::last_output(std::uint32_t local_rank) const {
    const WorkerStream* stream = last_written(local_rank);
    return stream != nullptr ? stream->tail() : "";
}

std::string OutputRelay::last_output_file(std::uint32_t local_rank) const {
    const WorkerStream* stream = last_written(local_rank);
    return stream != nullptr ? stream->path() : "";
}

std::string OutputRelay::file(std::uint32_t local_rank, bool is_stderr) const {
    const auto found = workers_.find(local_rank);
    if (found == workers_.end()) {
        return "";
    }
    const std::optional<WorkerStream>& stream = is_stderr ? found->second->err : found->second->out;
    return stream ? stream->path() : "";
}

std::optional<std::vector<std::uint64_t>> OutputRelay::bytes(std::uint32_t workers) const {
    std::vector<std::uint64_t> result(workers);
    bool any = false;
    for (const auto& [local_rank, worker] : workers_) {
        any = any || worker->out || worker->err;
        if (local_rank < workers) {
            result[local_rank] = worker->bytes;
        }
    }
    return any ? std::optional(std::move(result)) : std::nullopt;
}

void OutputRelay::close_all() {
    for (const auto& [local_rank, worker] : workers_) {
        worker->each([](WorkerStream& stream) { stream.drain(); });
    }
    workers_.clear();
}

void OutputRelay::say(std::string_view line) {
    say_lines({options_.own_prefix + "regroup: " + std::string(line)});
}

void OutputRelay::say_of_job(const std::string& line, const std::string& here,
                             const std::string& topic) {
    if (prints_job_lines()) {
        say(line + here);
    } else {
        options_.on_job_line(line, topic.empty() ? line : topic);
    }
}

void OutputRelay::pass_on(bool to_stderr, std::string_view lines, std::size_t line_count) {
    (to_stderr || !stdout_ ? *stderr_ : *stdout_).write(lines, line_count);
}

void OutputRelay::say_lines(const std::vector<std::string>& lines) {
    std::string text;
    for (const std::string& line : lines) {
        text += printable(line) + "\n";
    }
    stderr_->write_own(text, lines.size());
}

bool OutputRelay::show_progress(const std::string& line) {
    return options_.in_place && (line.empty() || !inherits_) &&
           stderr_->show_status(line.empty() ? line : "regroup: " + printable(line));
}

bool OutputRelay::flush(Instant deadline) {
    show_progress("");
    const bool shown = !stdout_ || stdout_->flush(clock_, deadline);
    return stderr_->flush(clock_, deadline) && shown;
}

void OutputRelay::report_file_error(const std::string& path, const std::string& reason) {
    if (!std::exchange(file_error_said_, true)) {
        say("cannot write to '" + path + "': " + reason +
            "; output is lost to the files for as long as that lasts");
    }
}

}  // namespace regroup::agent
