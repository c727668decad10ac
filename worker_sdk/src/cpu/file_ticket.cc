// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/file_ticket.h"

#include <fcntl.h>
#include <string>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

namespace regroup::cpu {

FileTicket FileTicket::of(const UniqueFd& file) {
    struct stat facts{};
    if (!file || ::fstat(file.get(), &facts) != 0) {
        return {};
    }
    return {.device = facts.st_dev,
            .inode = facts.st_ino,
            .process = ::getpid(),
            .descriptor = file.get()};
}

UniqueFd FileTicket::open(int flags) const {
    const std::string path =
        "/proc/" + std::to_string(process) + "/fd/" + std::to_string(descriptor);
    UniqueFd file(::open(path.c_str(), flags | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat facts{};
    // Process ids differ between containers: check that this is the file of the ticket. Ranks on
    // one machine share a kernel, in which inodes of files without a name are unique. Root could
    // open the file of another user, whose process is no rank.
    const bool is_right = file && ::fstat(file.get(), &facts) == 0 && facts.st_dev == device &&
                          facts.st_ino == inode && facts.st_uid == ::geteuid();
    return is_right ? std::move(file) : UniqueFd();
}

}  // namespace regroup::cpu
