// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/files/line_log.h"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <deque>
#include <fcntl.h>
#include <mutex>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include "rendezvous/files/background.h"
#include "rendezvous/files/own_file.h"

namespace regroup::files {

namespace {

// The most bytes that one write(2) gets: all of them are lost if it fails.
constexpr std::size_t kBatchBytes = std::size_t{64} << 10U;
// The most bytes that one read(2) takes.
constexpr std::size_t kReadBytes = std::size_t{64} << 10U;
// Another process may rename the file between the opening and the lock.
constexpr int kOpenTries = 4;

std::string former(const std::string& path) {
    return path + ".1";
}

/// The lines of the newest `bytes_max` bytes.
void read_lines(const std::string& path, std::uint64_t bytes_max,
                const std::function<void(std::string_view line)>& on_line) {
    const Result<UniqueFd> file = open_own(path, O_RDONLY);
    struct stat facts{};
    if (!file || ::fstat(file->get(), &facts) != 0 || !S_ISREG(facts.st_mode)) {
        return;  // A terminal would wait for its user.
    }
    const auto size = static_cast<std::uint64_t>(facts.st_size);
    std::uint64_t at = size - std::min(size, bytes_max);
    bool leaves_out = at > 0;  // The rest of a line.
    std::string line;
    std::vector<char> buffer(kReadBytes);
    while (at < size) {
        const ssize_t count = ::pread(file->get(), buffer.data(), std::min(size - at, kReadBytes),
                                      static_cast<off_t>(at));
        if (count <= 0) {
            break;
        }
        at += static_cast<std::uint64_t>(count);
        std::string_view rest(buffer.data(), static_cast<std::size_t>(count));
        while (!rest.empty()) {
            const std::string_view part = rest.substr(0, rest.find('\n'));
            leaves_out = leaves_out || line.size() + part.size() > LineLog::kLineBytesMax;
            line.append(leaves_out ? "" : part);
            rest.remove_prefix(part.size());
            if (rest.empty()) {
                break;
            }
            rest.remove_prefix(1);
            if (!std::exchange(leaves_out, false)) {
                on_line(line);
            }
            line.clear();
        }
    }
}

}  // namespace

/// The file, on the log's thread.
class LineLog::File {
   public:
    explicit File(const Options& options) : path_(options.path), bytes_max_(options.bytes_max) {}

    Result<void> open() {
        file_.reset();
        Result<UniqueFd> opened = open_own(path_, O_WRONLY | O_CREAT | O_APPEND, 0600);
        if (!opened) {
            return Failure(opened.error().code,
                           "cannot write " + path_ + ": " + opened.error().detail);
        }
        file_ = *std::move(opened);
        return {};
    }

    /// Appends all of `text` or nothing.
    Result<void> append(const std::string& text) {
        if (Result<void> locked = lock(); !locked) {
            return locked;
        }
        Result<void> done = append_locked(text);
        if (file_) {
            ::flock(file_.get(), LOCK_UN);
        }
        return done;
    }

   private:
    /// Locks the file that has the name now.
    Result<void> lock() {
        for (int tries = 0; tries < kOpenTries; ++tries) {
            if (!file_) {
                if (Result<void> opened = open(); !opened) {
                    return opened;
                }
            }
            if (::flock(file_.get(), LOCK_EX) != 0 && errno != EINTR) {
                return system_failure("cannot write " + path_, errno);
            }
            struct stat ours{};
            struct stat named{};
            if (::fstat(file_.get(), &ours) == 0 && ::stat(path_.c_str(), &named) == 0 &&
                ours.st_ino == named.st_ino && ours.st_dev == named.st_dev) {
                size_ = S_ISREG(ours.st_mode) ? static_cast<std::uint64_t>(ours.st_size) : 0;
                return {};
            }
            file_.reset();
        }
        return Failure(Errc::system,
                       "cannot write " + path_ + ": another process renames it all the time");
    }

    Result<void> append_locked(const std::string& text) {
        if (size_ > 0 && size_ + text.size() > bytes_max_) {
            if (::rename(path_.c_str(), former(path_).c_str()) != 0) {
                return system_failure("cannot rename " + path_ + " to " + former(path_), errno);
            }
            file_.reset();
            if (Result<void> locked = lock(); !locked) {
                return locked;
            }
        }
        return append_whole(file_.get(), path_, static_cast<off_t>(size_), text);
    }

    const std::string path_;
    const std::uint64_t bytes_max_;
    UniqueFd file_;
    std::uint64_t size_ = 0;  // As of lock().
};

struct LineLog::Impl {
    /// A line with its newline, or, with an empty line, the number of those lost before the next.
    struct Entry {
        std::string line;
        std::uint64_t lost = 0;
    };
    struct Batch {
        std::string text;
        std::uint64_t lines = 0;
        bool is_empty = true;  ///< Nothing is left to do.
    };
    /// Shared with the thread.
    struct Shared {
        explicit Shared(Options options_in) : options(std::move(options_in)), file(options) {}

        const Options options;
        std::mutex mutex;
        std::deque<Entry> queue;
        std::size_t queue_bytes = 0;
        bool is_posted = false;
        // On the thread only.
        File file;
        std::uint64_t lost = 0;
        bool is_told = false;

        void run();
        [[nodiscard]] Batch take();
    };

    explicit Impl(Options options) : shared(std::make_shared<Shared>(std::move(options))) {}

    void post();

    std::shared_ptr<Shared> shared;
    std::uint64_t lost = 0;  // Since the last line that was queued.
    Background background;
};

/// The next lines for the file. Lines that were lost before them are added to `lost`.
LineLog::Impl::Batch LineLog::Impl::Shared::take() {
    const std::scoped_lock lock(mutex);
    Batch batch;
    while (!queue.empty()) {
        Entry& next = queue.front();
        const bool fits = next.lost == 0 && batch.text.size() + next.line.size() <= kBatchBytes;
        if (batch.lines > 0 && !fits) {
            break;
        }
        lost += next.lost;
        batch.lines += next.line.empty() ? 0 : 1;
        batch.text += next.line;
        queue_bytes -= next.line.size();
        queue.pop_front();
        batch.is_empty = false;
    }
    is_posted = !batch.is_empty;
    return batch;
}

void LineLog::Impl::Shared::run() {
    for (Batch batch = take(); !batch.is_empty; batch = take()) {
        const std::string count = lost > 0 ? options.lost_line(lost) + "\n" : "";
        const Result<void> written = file.append(count + batch.text);
        lost = written ? 0 : lost + batch.lines;
        if (!written && !std::exchange(is_told, true) && options.on_trouble) {
            options.on_trouble(written.error().detail);
        }
        is_told = is_told && !written;
    }
}

void LineLog::Impl::post() {
    {
        const std::scoped_lock lock(shared->mutex);
        if (std::exchange(shared->is_posted, true)) {
            return;
        }
    }
    if (!background.post([shared = shared] { shared->run(); })) {
        const std::scoped_lock lock(shared->mutex);
        shared->is_posted = false;  // The next line tries again.
    }
}

LineLog::LineLog(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}

LineLog::~LineLog() {
    flush(Duration::zero());  // Its thread ends only when it has written all.
}

Result<std::unique_ptr<LineLog>> LineLog::open(Options options) {
    auto impl = std::make_unique<Impl>(std::move(options));
    const std::string& path = impl->shared->options.path;
    if (const Result<void> opened = impl->shared->file.open(); !opened) {
        return opened.error();
    }
    if (struct stat facts{}; ::lstat(former(path).c_str(), &facts) == 0) {
        const Result<UniqueFd> opened = open_own(former(path), O_RDONLY);
        if (!opened) {
            return Failure(opened.error().code,
                           "cannot replace " + former(path) + ", as " + path +
                               " must when it is full: " + opened.error().detail);
        }
    }
    return std::unique_ptr<LineLog>(new LineLog(std::move(impl)));
}

void LineLog::read(const std::function<void(std::string_view line)>& on_line) const {
    const Options& options = impl_->shared->options;
    read_lines(former(options.path), options.bytes_max, on_line);
    read_lines(options.path, options.bytes_max, on_line);
}

void LineLog::write(const std::string& line) {
    {
        const std::scoped_lock lock(impl_->shared->mutex);
        Impl::Shared& shared = *impl_->shared;
        if (shared.queue_bytes + line.size() + 1 > shared.options.queue_bytes_max) {
            ++impl_->lost;
            return;
        }
        if (impl_->lost > 0) {
            shared.queue.push_back({"", std::exchange(impl_->lost, 0)});
        }
        shared.queue.push_back({line + "\n"});
        shared.queue_bytes += line.size() + 1;
    }
    impl_->post();
}

bool LineLog::flush(Duration limit) {
    if (impl_->lost > 0) {
        const std::scoped_lock lock(impl_->shared->mutex);
        impl_->shared->queue.push_back({"", std::exchange(impl_->lost, 0)});
    }
    impl_->post();
    return impl_->background.drain(limit);
}

}  // namespace regroup::files
