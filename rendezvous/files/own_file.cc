// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/files/own_file.h"

#include <cerrno>
#include <fcntl.h>
#include <filesystem>
#include <optional>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

namespace regroup::files {
namespace {

class Descriptor {
   public:
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    ~Descriptor() {
        if (fd_ >= 0) {
            ::close(fd_);
        }
    }
    Descriptor(const Descriptor&) = delete;
    Descriptor& operator=(const Descriptor&) = delete;
    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] int release() noexcept { return std::exchange(fd_, -1); }

   private:
    int fd_;
};

bool is_us_or_root(uid_t user) noexcept {
    return user == 0 || user == ::geteuid();
}

/// The folder that has the last component of a path.
struct Parent {
    explicit Parent(const std::filesystem::path& path)
        : name(path.has_filename() ? path.filename() : "."),
          folder(::open(path.has_parent_path() ? path.parent_path().c_str() : ".",
                        O_PATH | O_DIRECTORY | O_CLOEXEC)) {
        if (folder.get() >= 0 && ::fstat(folder.get(), &facts) != 0) {
            facts = {};
        }
    }

    [[nodiscard]] bool follows_links() const noexcept {
        return is_us_or_root(facts.st_uid) && (facts.st_mode & S_IWOTH) == 0;
    }
    /// Several users own what is in it.
    [[nodiscard]] bool is_sticky() const noexcept {
        return (facts.st_mode & S_ISVTX) != 0 && (facts.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    }
    [[nodiscard]] bool trusts(uid_t owner) const noexcept {
        return is_us_or_root(owner) || owner == facts.st_uid;
    }

    std::filesystem::path name;
    Descriptor folder;
    struct stat facts{};
};

Failure refusal(const std::string& why) {
    return {Errc::system, why};
}

Failure refusal(int error_number) {
    return refusal(std::generic_category().message(error_number));
}

std::string of_another_user(uid_t owner) {
    return "it belongs to another user (uid " + std::to_string(owner) +
           "), who may have put it there for this process to find; remove it or choose another "
           "folder";
}

constexpr const char* kForeignLink =
    "it is a symbolic link, in a folder in which another user may have put it; remove it or choose "
    "another folder";

/// Why an opened file is not to be used.
std::optional<std::string> objection(const struct stat& file, const Parent& parent) {
    if (!S_ISREG(file.st_mode) && !S_ISCHR(file.st_mode)) {
        return "it is no regular file";
    }
    if (!parent.is_sticky()) {
        return std::nullopt;
    }
    if (!parent.trusts(file.st_uid)) {
        return of_another_user(file.st_uid);
    }
    if (S_ISREG(file.st_mode) && file.st_nlink > 1) {
        return "it has another name, by a hard link that another user may have made; remove it or "
               "choose another folder";
    }
    return std::nullopt;
}

}  // namespace

Result<int> open_own(const std::string& path, int flags, mode_t mode) {
    const Parent parent{std::filesystem::path(path)};
    if (parent.folder.get() < 0) {
        return refusal(errno);
    }
    const int no_follow = parent.follows_links() ? 0 : O_NOFOLLOW;
    Descriptor file(::openat(parent.folder.get(), parent.name.c_str(),
                             (flags & ~O_TRUNC) | no_follow | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                             mode));
    if (file.get() < 0) {
        return errno == ELOOP && no_follow != 0    ? refusal(kForeignLink)
               : errno == ENXIO || errno == EISDIR ? refusal("it is no regular file")
                                                   : refusal(errno);
    }
    struct stat facts{};
    if (::fstat(file.get(), &facts) != 0) {
        return refusal(errno);
    }
    if (const auto why = objection(facts, parent)) {
        return refusal(*why);
    }
    if ((flags & O_TRUNC) != 0 && facts.st_size != 0 && ::ftruncate(file.get(), 0) != 0) {
        return refusal(errno);
    }
    ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
    return file.release();
}

Result<void> make_own_folder(const std::string& path, mode_t mode) {
    std::filesystem::path folder(path);
    if (!folder.has_filename()) {  // It ends in a slash.
        folder = folder.parent_path();
    }
    if (std::error_code error; folder.has_parent_path()) {
        std::filesystem::create_directories(folder.parent_path(), error);
        if (error) {
            return refusal(error.value());
        }
    }
    const Parent parent(folder);
    if (parent.folder.get() < 0) {
        return refusal(errno);
    }
    const int at = parent.folder.get();
    if (::mkdirat(at, parent.name.c_str(), mode) == 0) {
        return {};
    }
    if (errno != EEXIST) {
        return refusal(errno);
    }
    struct stat entry{};
    struct stat target{};
    if (::fstatat(at, parent.name.c_str(), &entry, AT_SYMLINK_NOFOLLOW) != 0 ||
        ::fstatat(at, parent.name.c_str(), &target, 0) != 0) {
        return refusal(errno);
    }
    if (!S_ISDIR(target.st_mode)) {
        return refusal(ENOTDIR);
    }
    if (S_ISLNK(entry.st_mode) && !parent.follows_links() && !parent.trusts(entry.st_uid)) {
        return refusal(kForeignLink);
    }
    if (parent.is_sticky() && !parent.trusts(entry.st_uid)) {
        return refusal(of_another_user(entry.st_uid));
    }
    return {};
}

}  // namespace regroup::files
