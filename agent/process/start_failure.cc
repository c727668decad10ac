// SPDX-License-Identifier: Apache-2.0
#include "agent/process/start_failure.h"

#include <cerrno>
#include <cstdint>
#include <sys/resource.h>

#include "rendezvous/cgroup/cgroup.h"

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
    if (const auto limit = cgroup::task_limit(root); limit && limit->left() == 0) {
        return "the cgroup " + limit->folder.string() + " allows " + std::to_string(limit->most) +
               " processes and threads (pids.max)";
    }
    rlimit of_user{};
    if (::getrlimit(RLIMIT_NPROC, &of_user) == 0 && of_user.rlim_cur != RLIM_INFINITY) {
        return "this user may have " + std::to_string(of_user.rlim_cur) +
               " processes and threads (ulimit -u)";
    }
    return "";
}

}  // namespace regroup::agent
