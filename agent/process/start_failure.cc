// SPDX-License-Identifier: Apache-2.0
#include "agent/process/start_failure.h"

#include <cerrno>
#include <cstdint>
#include <fstream>
#include <optional>
#include <sys/resource.h>

#include "agent/process/cgroup.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

bool may_pass(int error_number) {
    switch (error_number) {
        // The node is short of something.
        case EAGAIN:
        case EBUSY:
        case EDQUOT:
        case EMFILE:
        case ENFILE:
        case ENOBUFS:
        case ENOMEM:
        case ENOSPC:
        // The program is being written, or its file system does not answer.
        case EHOSTDOWN:
        case EHOSTUNREACH:
        case EINTR:
        case EIO:
        case ENETDOWN:
        case ENETUNREACH:
        case ENOTCONN:
        case ESTALE:
        case ETIMEDOUT:
        case ETXTBSY:
            return true;
        default:
            return false;
    }
}

/// The number in a file, which may hold "max" instead.
std::optional<std::uint64_t> read_number(const fs::path& file) {
    std::ifstream text(file);
    std::uint64_t number = 0;
    return text >> number ? std::optional(number) : std::nullopt;
}

/// The limit of the first cgroup from our own up to the top that has no room left.
std::string full_cgroup(const Cgroup& cgroup) {
    for (fs::path folder = cgroup.folder;; folder = folder.parent_path()) {
        const auto limit = read_number(folder / "pids.max");
        const auto used = read_number(folder / "pids.current");
        if (limit && used && *used >= *limit) {
            return "the cgroup " + folder.string() + " allows " + std::to_string(*limit) +
                   " processes and threads (pids.max)";
        }
        if (folder == cgroup.top || folder == folder.parent_path()) {
            return "";
        }
    }
}

}  // namespace

Failure start_failure(const std::string& what, int error_number) {
    Failure failure = system_failure(what, error_number);
    if (may_pass(error_number)) {
        failure.code = Errc::overloaded;
    }
    if (error_number == EAGAIN) {
        const std::string limit = reached_process_limit();
        failure.detail += limit.empty() ? "" : "; " + limit;
    }
    return failure;
}

std::string reached_process_limit(const fs::path& root) {
    for (const char* type : {"cgroup2", "cgroup"}) {
        if (const auto cgroup = find_cgroup(root, type, "pids")) {
            if (std::string limit = full_cgroup(*cgroup); !limit.empty()) {
                return limit;
            }
        }
    }
    rlimit of_user{};
    if (::getrlimit(RLIMIT_NPROC, &of_user) == 0 && of_user.rlim_cur != RLIM_INFINITY) {
        return "this user may have " + std::to_string(of_user.rlim_cur) +
               " processes and threads (ulimit -u)";
    }
    return "";
}

}  // namespace regroup::agent
