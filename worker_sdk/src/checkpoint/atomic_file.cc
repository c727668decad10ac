// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/checkpoint/atomic_file.h"

#include <regroup/error.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <fcntl.h>
#include <string>
#include <sys/file.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "worker_sdk/src/link/progress_reporter.h"

namespace regroup::checkpointing {
namespace {

constexpr std::size_t kPieceBytes = std::size_t{16} << 20U;

constexpr std::string_view kPartialSuffix = ".partial";
constexpr int kAttempts = 1000;

/// Locks a new partial file. False if another writer takes it for the file of a killed writer and
/// removes it.
bool claim(int fd) noexcept {
    if (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
        // Without support for locks only the removal of stale files does not work.
        return errno != EWOULDBLOCK;
    }
    struct stat status{};
    return ::fstat(fd, &status) != 0 || status.st_nlink > 0;
}

/// Whether `path` still names the open file `fd`.
bool is_still(const std::filesystem::path& path, int fd) noexcept {
    struct stat opened{};
    struct stat named{};
    return ::fstat(fd, &opened) == 0 && ::stat(path.c_str(), &named) == 0 &&
           opened.st_dev == named.st_dev && opened.st_ino == named.st_ino;
}

}  // namespace

AtomicFile::AtomicFile(std::filesystem::path path)
    : path_(std::move(path)),
      directory_(path_.has_parent_path() ? path_.parent_path() : std::filesystem::path(".")) {
    remove_stale_partials();
    const std::string stem = path_.string() + "." + std::to_string(::getpid()) + "-";
    for (int attempt = 0; !file_; ++attempt) {
        partial_ = stem + std::to_string(attempt) + std::string(kPartialSuffix);
        file_ =
            UniqueFd(::open(partial_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, kFileMode));
        // A process with the same id, on another machine or earlier, may have used this name.
        if (!file_ && (errno != EEXIST || attempt == kAttempts)) {
            fail("open", partial_, errno);
        }
        if (file_ && attempt < kAttempts && !claim(file_.get())) {
            file_.reset();
        }
    }
}

AtomicFile::~AtomicFile() {
    if (file_) {
        ::unlink(partial_.c_str());
    }
}

void AtomicFile::write(std::string_view bytes) {
    while (!bytes.empty()) {
        // In pieces, to show how far it is.
        const ssize_t count =
            ::write(file_.get(), bytes.data(), std::min(bytes.size(), kPieceBytes));
        const int error_number = errno;
        if (count < 0 && error_number != EINTR) {
            const std::string call = "write at byte " + std::to_string(written_bytes_) + " of";
            fail(call, partial_, error_number);
        }
        if (count > 0) {
            bytes.remove_prefix(static_cast<std::size_t>(count));
            written_bytes_ += static_cast<std::uint64_t>(count);
            link::SdkTransfer::add(static_cast<std::uint64_t>(count));
        }
    }
}

void AtomicFile::commit(std::size_t previous_count) {
    flush();
    publish(previous_count);
    flush_directory();
}

void AtomicFile::flush() {
    // The data must reach the disk before the rename, or a power cut leaves an empty file.
    if (::fsync(file_.get()) != 0) {
        fail("fsync", partial_, errno);
    }
}

void AtomicFile::publish(std::size_t previous_count) {
    keep_previous(previous_count);
    if (std::rename(partial_.c_str(), path_.c_str()) != 0) {
        fail("rename to its final name", partial_, errno);
    }
    file_.reset();
}

void AtomicFile::flush_directory() const {
    const UniqueFd directory(::open(directory_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory || ::fsync(directory.get()) != 0) {
        fail("fsync", directory_, errno);
    }
}

// The newest one is linked, not moved, so that at every moment `path_` has a complete file.
void AtomicFile::keep_previous(std::size_t previous_count) const {
    const auto numbered = [this](std::size_t number) {
        return path_.string() + "." + std::to_string(number);
    };
    for (std::size_t number = previous_count; number > 1; --number) {
        const std::string younger = numbered(number - 1);
        if (std::rename(younger.c_str(), numbered(number).c_str()) != 0 && errno != ENOENT) {
            fail("rename", younger, errno);
        }
    }
    if (previous_count > 0) {
        const std::string latest = numbered(1);
        if (::unlink(latest.c_str()) != 0 && errno != ENOENT) {
            fail("unlink", latest, errno);
        }
        if (::link(path_.c_str(), latest.c_str()) != 0 && errno != ENOENT) {
            fail("link a copy of", path_, errno);
        }
    }
}

void AtomicFile::remove_stale_partials() const {
    const std::string prefix = path_.filename().string() + ".";
    std::error_code error;
    std::filesystem::directory_iterator entry(directory_, error);
    for (const std::filesystem::directory_iterator end; !error && entry != end;
         entry.increment(error)) {
        const std::string name = entry->path().filename().string();
        if (name.starts_with(prefix) && name.ends_with(kPartialSuffix)) {
            // A FIFO of that name must not block.
            const UniqueFd partial(
                ::open(entry->path().c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
            // Its writer may have renamed it in the meantime and created a new file of this name.
            if (partial && ::flock(partial.get(), LOCK_EX | LOCK_NB) == 0 &&
                is_still(entry->path(), partial.get())) {
                ::unlink(entry->path().c_str());
            }
        }
    }
}

void AtomicFile::fail(std::string_view call, const std::filesystem::path& file,
                      int error_number) const {
    throw Error(Errc::system, "saving " + path_.string() + ": " + std::string(call) + " " +
                                  file.string() + ": " +
                                  std::generic_category().message(error_number));
}

}  // namespace regroup::checkpointing
