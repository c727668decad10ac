// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/bootstrap.h"

#include <regroup/error.h>

#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <set>
#include <span>
#include <sys/socket.h>
#include <sys/stat.h>
#include <utility>

#include "rendezvous/base/text.h"
#include "worker_sdk/src/base/text.h"

namespace regroup::nccl {
namespace {

// By number and inode: another thread may close a descriptor at any time, and the kernel gives its
// number to the next one.
std::set<std::pair<int, ino_t>> open_descriptors() {
    std::set<std::pair<int, ino_t>> found;
    const std::unique_ptr<DIR, int (*)(DIR*)> folder(::opendir("/proc/self/fd"), ::closedir);
    if (!folder) {
        return found;
    }
    const int at = ::dirfd(folder.get());
    if (at < 0) {
        return found;
    }
    while (const dirent* const entry = ::readdir(folder.get())) {
        const auto fd = parse_number<int>(entry->d_name);
        struct stat status{};
        // By name: most of them are other threads', which may be about to use them first.
        if (fd && ::fstatat(at, entry->d_name, &status, 0) == 0) {
            found.emplace(*fd, status.st_ino);
        }
    }
    return found;
}

bool is_listening(int fd) {
    int listening = 0;
    socklen_t bytes = sizeof listening;
    return ::getsockopt(fd, SOL_SOCKET, SO_ACCEPTCONN, &listening, &bytes) == 0 && listening != 0;
}

}  // namespace

RootPlan plan_roots(std::uint32_t rank, std::uint32_t world_size, std::uint32_t local_rank,
                    std::uint32_t node, std::uint32_t nodes, bool scalable) {
    const bool many = world_size > kRanksOfOneRoot || nodes > kNodesOfOneRoot;
    if (!scalable || !many || nodes < 2) {
        return {.roots = 1, .hosted = rank == 0 ? 0U : 1U};
    }
    return {.roots = nodes, .hosted = local_rank == 0 ? node : nodes};
}

ncclUniqueId make_unique_id(const NcclApi& api) {
    const auto before = open_descriptors();
    ncclUniqueId id{};
    const ncclResult_t result = api.get_unique_id(&id);
    if (result != ncclSuccess) {
        throw Error(Errc::system,
                    "ncclGetUniqueId: " + std::string(api.get_error_string(result)) + " (" +
                        api.get_last_error(nullptr) +
                        "); NCCL_SOCKET_IFNAME names the network interface that it should use");
    }
    for (const auto& descriptor : open_descriptors()) {
        if (!before.contains(descriptor) && is_listening(descriptor.first)) {
            (void)::fcntl(descriptor.first, F_SETFD, FD_CLOEXEC);
        }
    }
    return id;
}

std::string to_text(const ncclUniqueId& id) {
    return hex_of(std::as_bytes(std::span(id.internal)));
}

ncclUniqueId parse_unique_id(std::string_view text) {
    ncclUniqueId id{};
    if (!parse_hex(text, std::as_writable_bytes(std::span(id.internal)))) {
        throw Error(Errc::invalid_argument,
                    "the store's entry is not an id of NCCL: \"" + std::string(text) + "\"");
    }
    return id;
}

}  // namespace regroup::nccl
