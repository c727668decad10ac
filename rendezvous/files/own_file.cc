// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/files/own_file.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <fcntl.h>
#include <filesystem>
#include <linux/magic.h>
#include <optional>
#include <sys/stat.h>
#include <sys/vfs.h>
#include <system_error>
#include <unistd.h>
#include <utility>
#include <vector>

#include <climits>

namespace regroup::files {
namespace {

bool is_us_or_root(uid_t user) noexcept {
    return user == 0 || user == ::geteuid();
}

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

constexpr const char* kNewLink =
    "it has become a symbolic link while it was looked at; remove it or choose another folder";

std::string of_another_users_link(const std::string& link, uid_t owner) {
    return link + " is a symbolic link of another user (uid " + std::to_string(owner) +
           "), in a folder that others may write to; remove it or choose another folder";
}

/// The folder that has the last component of a path, reached component by component.
class Walk {
   public:
    /// Makes missing folders on the way if `makes_folders`. A link at the end is left to follow().
    static Result<Walk> to(const std::string& path, bool makes_folders) {
        Walk way(makes_folders);
        way.push(path);
        if (const Result<void> begun = way.begin(path.starts_with('/')); !begun) {
            return begun.error();
        }
        if (const Result<void> walked = way.walk(); !walked) {
            return walked.error();
        }
        return way;
    }

    [[nodiscard]] int folder() const noexcept { return folder_.get(); }
    /// Of the last component.
    [[nodiscard]] const std::string& name() const noexcept { return pending_.front(); }

    /// Several users own what is in the folder.
    [[nodiscard]] bool is_sticky() const noexcept {
        return (facts_.st_mode & S_ISVTX) != 0 && is_shared();
    }
    [[nodiscard]] bool trusts(uid_t owner) const noexcept {
        return is_us_or_root(owner) || (is_named_ && owner == facts_.st_uid);
    }

    enum class Link : std::uint8_t {
        none,      ///< The last component is no link.
        followed,  ///< The walk has gone on to the place of its target.
        magic,     ///< Only the kernel can follow it, and may.
    };
    /// Follows a link at the end. Errors: system, where the link is not to be followed.
    Result<Link> follow() {
        UniqueFd end(::openat(folder(), name().c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
        struct stat found{};
        if (end.get() < 0 || ::fstat(end.get(), &found) != 0) {
            return errno == ENOENT ? Result<Link>(Link::none) : refusal(errno);
        }
        if (!S_ISLNK(found.st_mode)) {
            return Link::none;
        }
        if (!trusts_link(found)) {
            return refusal(of_another_users_link(shown_ + name(), found.st_uid));
        }
        if (is_magic(end.get())) {
            return Link::magic;
        }
        pending_.pop_front();
        if (const Result<void> gone = go_to_target(end.get()); !gone) {
            return gone.error();
        }
        if (const Result<void> walked = walk(); !walked) {
            return walked.error();
        }
        return Link::followed;
    }

   private:
    static constexpr int kLinksMax = 40;  // As the kernel.

    explicit Walk(bool makes_folders) : makes_folders_(makes_folders) {}

    [[nodiscard]] bool is_shared() const noexcept {
        return (facts_.st_mode & (S_IWGRP | S_IWOTH)) != 0;
    }
    /// Nobody but its owner and root can put a link into a folder that is not shared. Of that owner
    /// it is trusted if the user, and not the owner, named the folder.
    [[nodiscard]] bool trusts_link(const struct stat& link) const noexcept {
        return is_us_or_root(link.st_uid) ||
               (is_named_ && !is_shared() && link.st_uid == facts_.st_uid);
    }

    /// A link of the kernel in /proc may lead to a file that has no path.
    static bool is_magic(int link) {
        struct statfs found{};
        return ::fstatfs(link, &found) == 0 && found.f_type == PROC_SUPER_MAGIC;
    }

    /// Puts the components of `path` before those that are left.
    void push(const std::string& path) {
        std::vector<std::string> parts;
        for (const std::filesystem::path& part : std::filesystem::path(path)) {
            if (part != "/" && part != "." && !part.empty()) {
                parts.push_back(part);
            }
        }
        pending_.insert(pending_.begin(), parts.begin(), parts.end());
        if (pending_.empty()) {
            pending_.emplace_back(".");
        }
    }

    Result<void> begin(bool at_root) {
        const char* const start = at_root ? "/" : ".";
        shown_ = at_root ? "/" : "";
        is_named_ = true;
        return enter(UniqueFd(::open(start, O_PATH | O_DIRECTORY | O_CLOEXEC)));
    }

    Result<void> enter(UniqueFd folder) {
        struct stat found{};
        if (folder.get() < 0 || ::fstat(folder.get(), &found) != 0) {
            return refusal(errno);
        }
        // In a shared folder a stranger may have made it, for this process to find.
        is_named_ = is_named_ && (!is_shared() || trusts(found.st_uid));
        folder_ = std::move(folder);
        facts_ = found;
        return {};
    }

    Result<void> walk() {
        while (pending_.size() > 1) {
            if (const Result<void> stepped = step(); !stepped) {
                return stepped.error();
            }
        }
        return {};
    }

    Result<void> step() {
        const std::string part = std::move(pending_.front());
        pending_.pop_front();
        UniqueFd next = open_folder(part);
        if (next.get() < 0 && errno == ENOENT && makes_folders_) {
            if (::mkdirat(folder(), part.c_str(), 0777) != 0 && errno != EEXIST) {
                return refusal(errno);
            }
            next = open_folder(part);
        }
        if (next.get() >= 0) {
            shown_ += part + "/";
            return enter(std::move(next));
        }
        if (errno != ENOTDIR && errno != ELOOP) {
            return refusal(errno);
        }
        UniqueFd link(::openat(folder(), part.c_str(), O_PATH | O_NOFOLLOW | O_CLOEXEC));
        struct stat found{};
        if (link.get() < 0 || ::fstat(link.get(), &found) != 0) {
            return refusal(errno);
        }
        if (!S_ISLNK(found.st_mode)) {
            return refusal(ENOTDIR);
        }
        if (!trusts_link(found)) {
            return refusal(of_another_users_link(shown_ + part, found.st_uid));
        }
        if (is_magic(link.get())) {
            shown_ += part + "/";
            return enter(
                UniqueFd(::openat(folder(), part.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)));
        }
        return go_to_target(link.get());
    }

    /// With O_DIRECTORY, an automounter mounts what is there.
    [[nodiscard]] UniqueFd open_folder(const std::string& part) const {
        return UniqueFd(
            ::openat(folder(), part.c_str(), O_PATH | O_NOFOLLOW | O_DIRECTORY | O_CLOEXEC));
    }

    Result<void> go_to_target(int link) {
        std::string target(PATH_MAX, '\0');
        const ssize_t bytes = ::readlinkat(link, "", target.data(), target.size());
        if (bytes <= 0) {
            return refusal(bytes < 0 ? errno : ENOENT);
        }
        if (++links_ > kLinksMax) {
            return refusal(ELOOP);
        }
        target.resize(static_cast<std::size_t>(bytes));
        push(target);
        return target.starts_with('/') ? begin(true) : Result<void>();
    }

    bool makes_folders_;
    UniqueFd folder_;
    struct stat facts_{};
    /// No stranger chose the folder by giving his own a name that this process looks for.
    bool is_named_ = true;
    std::string shown_;  ///< The way to `folder_`, with a slash at its end.
    std::deque<std::string> pending_;
    int links_ = 0;
};

/// Why an opened file is not to be used.
std::optional<std::string> objection(const struct stat& file, const Walk& place) {
    if (!S_ISREG(file.st_mode) && !S_ISCHR(file.st_mode)) {
        return "it is no regular file";
    }
    if (!place.is_sticky()) {
        return std::nullopt;
    }
    if (!place.trusts(file.st_uid)) {
        return of_another_user(file.st_uid);
    }
    if (S_ISREG(file.st_mode) && file.st_nlink > 1) {
        return "it has another name, by a hard link that another user may have made; remove it or "
               "choose another folder";
    }
    return std::nullopt;
}

}  // namespace

Result<UniqueFd> open_own(const std::string& path, int flags, mode_t mode) {
    Result<Walk> place = Walk::to(path, false);
    if (!place) {
        return place.error();
    }
    const bool no_link = (flags & (O_NOFOLLOW | O_EXCL)) != 0;
    auto link = no_link ? Walk::Link::none : Walk::Link::followed;
    while (link == Walk::Link::followed) {
        const Result<Walk::Link> followed = place->follow();
        if (!followed) {
            return followed.error();
        }
        link = *followed;
    }
    const int no_follow = link == Walk::Link::magic ? 0 : O_NOFOLLOW;
    UniqueFd file(::openat(place->folder(), place->name().c_str(),
                           (flags & ~O_TRUNC) | no_follow | O_NONBLOCK | O_NOCTTY | O_CLOEXEC,
                           mode));
    if (file.get() < 0) {
        return errno == ELOOP && no_follow != 0    ? refusal(kNewLink)
               : errno == ENXIO || errno == EISDIR ? refusal("it is no regular file")
                                                   : refusal(errno);
    }
    struct stat facts{};
    if (::fstat(file.get(), &facts) != 0) {
        return refusal(errno);
    }
    if (const auto why = objection(facts, *place)) {
        return refusal(*why);
    }
    if ((flags & O_TRUNC) != 0 && facts.st_size != 0 && ::ftruncate(file.get(), 0) != 0) {
        return refusal(errno);
    }
    ::fcntl(file.get(), F_SETFL, ::fcntl(file.get(), F_GETFL) & ~O_NONBLOCK);
    return file;
}

bool write_all(int fd, std::string_view text) {
    while (!text.empty()) {
        const ssize_t count = ::write(fd, text.data(), text.size());
        if (count < 0 && errno != EINTR) {
            return false;
        }
        text.remove_prefix(count < 0 ? 0 : static_cast<std::size_t>(count));
    }
    return true;
}

Result<void> append_whole(int fd, const std::string& path, off_t size, std::string_view text) {
    const ssize_t count = ::write(fd, text.data(), text.size());
    if (count == static_cast<ssize_t>(text.size())) {
        return {};
    }
    const int error = count < 0 ? errno : ENOSPC;
    if (count > 0 && ::ftruncate(fd, size) != 0) {
        return system_failure("cannot take back half a line of " + path, errno);
    }
    return system_failure("cannot write " + path, error);
}

Result<std::string> read_all(int fd, std::size_t bytes_max) {
    std::string text;
    std::array<char, std::size_t{1} << 16U> part;  // NOLINT(*-member-init)
    while (text.size() < bytes_max) {
        const ssize_t count =
            ::read(fd, part.data(), std::min(part.size(), bytes_max - text.size()));
        if (count == 0) {
            break;
        }
        if (count > 0) {
            text.append(part.data(), static_cast<std::size_t>(count));
        } else if (errno != EINTR) {
            return system_failure("read", errno);
        }
    }
    return text;
}

Result<void> make_own_folder(const std::string& path, mode_t mode) {
    Result<Walk> place = Walk::to(path, true);
    if (!place) {
        return place.error();
    }
    for (;;) {
        if (::mkdirat(place->folder(), place->name().c_str(), mode) == 0) {
            return {};
        }
        if (errno != EEXIST) {
            return refusal(errno);
        }
        const Result<Walk::Link> followed = place->follow();
        if (!followed) {
            return followed.error();
        }
        if (*followed != Walk::Link::followed) {
            break;
        }
    }
    struct stat found{};
    if (::fstatat(place->folder(), place->name().c_str(), &found, 0) != 0) {
        return refusal(errno);
    }
    if (!S_ISDIR(found.st_mode)) {
        return refusal(ENOTDIR);
    }
    if (place->is_sticky() && !place->trusts(found.st_uid)) {
        return refusal(of_another_user(found.st_uid));
    }
    return {};
}

}  // namespace regroup::files
