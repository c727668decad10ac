// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/record_saver.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/files/own_file.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

namespace {

namespace asio = boost::asio;
namespace fs = std::filesystem;

constexpr std::chrono::milliseconds kLookInterval(20);

/// Puts a byte into the FIFO. False if nobody reads it: then the process has no NCCL group.
bool ring(const std::string& path) {
    const UniqueFd pipe(::open(path.c_str(), O_WRONLY | O_NONBLOCK | O_CLOEXEC | O_NOFOLLOW));
    struct stat facts{};
    if (!pipe || ::fstat(pipe.get(), &facts) != 0 || !S_ISFIFO(facts.st_mode) ||
        facts.st_uid != ::geteuid()) {
        return false;
    }
    return ::write(pipe.get(), "1\n", 2) == 2;
}

/// Tells two states of a file apart; nothing while there is no file.
struct FileState {
    std::int64_t seconds = 0;
    std::int64_t nanoseconds = 0;
    std::int64_t size = 0;

    friend bool operator==(const FileState&, const FileState&) = default;
};

std::optional<FileState> state_of(const std::string& path) {
    struct stat facts{};
    if (::stat(path.c_str(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return std::nullopt;
    }
    return FileState{facts.st_mtim.tv_sec, facts.st_mtim.tv_nsec, facts.st_size};
}

/// The whole file; nothing while it is not complete. A pickle ends with a full stop.
Result<std::optional<std::string>> complete_pickle(const std::string& path) {
    const Result<UniqueFd> file = files::open_own(path, O_RDONLY);
    if (!file) {
        return Failure(file.error().code, path + ": " + file.error().detail);
    }
    Result<std::string> text = files::read_all(file->get(), kRecordBytesMax + 1);
    if (!text) {
        return Failure(text.error().code, path + ": " + text.error().detail);
    }
    if (text->size() > kRecordBytesMax) {
        return Failure(Errc::invalid_argument, path + " has more than 64 MiB");
    }
    return text->ends_with('.') ? std::optional(*std::move(text)) : std::nullopt;
}

std::string prefix_of(const fs::path& folder, std::uint32_t rank) {
    return (fs::absolute(folder) / ("rank" + std::to_string(rank))).string();
}

}  // namespace

Result<void> write_private_file(const std::string& path, std::string_view text) {
    const Result<UniqueFd> file = files::open_own(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (!file) {
        return Failure(file.error().code, "cannot write " + path + ": " + file.error().detail);
    }
    return files::write_all(file->get(), text) ? Result<void>()
                                               : system_failure("cannot write " + path, errno);
}

struct RecordSaver::Run : std::enable_shared_from_this<Run> {
    Run(asio::io_context& io_in, Instant deadline_in,
        std::function<void(const SavedRecords&)> on_done_in)
        : io(io_in), timer(io_in), deadline(deadline_in), on_done(std::move(on_done_in)) {}

    /// A pickle that a process is about to write.
    struct Awaited {
        std::string path;
        std::optional<FileState> before;
        std::string copy;
    };

    void complain(const std::string& sentence) {
        if (result.complaint.empty()) {
            result.complaint = sentence;
        }
    }

    void take(std::size_t files, const std::string& complaint) {
        --unanswered;
        result.files += files;
        if (!complaint.empty()) {
            complain(complaint);
        }
        finish_if_done();
    }

    void look(const Clock& clock) {
        std::erase_if(awaited, [this](const Awaited& file) { return has_come(file); });
        finish_if_done();
        if (!on_done) {
            return;
        }
        if (clock.now() >= deadline) {
            complain("not all workers have written their flight records in time");
            unanswered = 0;
            awaited.clear();
            return finish_if_done();
        }
        timer.expires_after(kLookInterval);
        timer.async_wait([weak = weak_from_this(), &clock](const boost::system::error_code& error) {
            if (const auto run = weak.lock(); run && !error) {
                run->look(clock);
            }
        });
    }

    bool has_come(const Awaited& file) {
        const std::optional<FileState> now = state_of(file.path);
        if (!now || now == file.before) {
            return false;
        }
        Result<std::optional<std::string>> text = complete_pickle(file.path);
        if (text && !*text) {
            return false;
        }
        const Result<void> kept = text ? write_private_file(file.copy, **text) : text.error();
        kept ? static_cast<void>(++result.files) : complain(kept.error().detail);
        return true;
    }

    void finish_if_done() {
        if (unanswered > 0 || !awaited.empty() || !on_done) {
            return;
        }
        timer.cancel();
        asio::post(io, [weak = weak_from_this(), done = std::exchange(on_done, nullptr)] {
            if (const auto run = weak.lock()) {
                done(run->result);
            }
        });
    }

    asio::io_context& io;
    asio::steady_timer timer;
    Instant deadline;
    std::function<void(const SavedRecords&)> on_done;
    std::size_t unanswered = 0;
    std::vector<Awaited> awaited;
    SavedRecords result;
};

RecordSaver::RecordSaver(asio::io_context& io, const Clock& clock, RecordOptions options, Ask ask)
    : io_(io), clock_(clock), options_(std::move(options)), ask_(std::move(ask)) {}

RecordSaver::~RecordSaver() = default;

void RecordSaver::save(const fs::path& folder, const std::vector<HangSubject>& subjects,
                       std::function<void(const SavedRecords&)> on_done) {
    run_ = std::make_shared<Run>(io_, after(clock_.now(), options_.limit), std::move(on_done));
    for (const HangSubject& subject : subjects) {
        if (subject.is_stopped) {
            continue;
        }
        const std::string prefix = prefix_of(folder, subject.rank);
        const std::string number = std::to_string(subject.rank);
        if (subject.has_sdk) {
            ++run_->unanswered;
            ask_(subject.local_rank, prefix,
                 [weak = std::weak_ptr(run_)](std::size_t files, const std::string& complaint) {
                     if (const auto run = weak.lock(); run && run->unanswered > 0) {
                         run->take(files, complaint);
                     }
                 });
        }
        if (!options_.torch.pipe.empty() && !options_.torch.dump.empty()) {
            const std::string dump = options_.torch.dump + number;
            const std::optional<FileState> before = state_of(dump);
            if (ring(options_.torch.pipe + number + ".pipe")) {
                run_->awaited.push_back({dump, before, prefix + ".nccl.pickle"});
            }
        }
    }
    run_->look(clock_);
}

}  // namespace regroup::agent
