// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/checkpoint/fence.h"

#include <regroup/error.h>

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/file.h>
#include <tuple>
#include <unistd.h>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/base/result.h"
#include "rendezvous/files/own_file.h"
#include "worker_sdk/src/checkpoint/atomic_file.h"
#include "worker_sdk/src/link/process_link.h"

namespace regroup::checkpointing {
namespace {

constexpr Duration kLockLimit = std::chrono::seconds(30);
constexpr int kLockPauseMs = 5;

std::string round_text(std::uint64_t round) {
    return "round " + std::to_string(round);
}

}  // namespace

void check_fence(const std::filesystem::path& path, const Author& author) {
    const std::string saving = "saving " + path.string() + " in " + round_text(author.round) + ": ";
    const auto link = link::process_link();
    // A leaving worker may save after the end of its round; then only the file shows a later round.
    if (link && link->ended(author.round) && !link->leaving()) {
        throw Error(Errc::fenced, saving + "this round is over");
    }
    const Author other = author_of(path);
    if (author.began == 0 ||
        std::tie(other.began, other.round) <= std::tie(author.began, author.round)) {
        return;  // A worker without a history relies on its agent alone.
    }
    throw Error(Errc::fenced,
                saving + (other.began == author.began
                              ? round_text(other.round) + " has saved it since"
                              : "another training has saved it, which began later than this one; "
                                "if that one is not wanted any more, remove the file"));
}

FileLock::FileLock(const std::filesystem::path& path) {
    const std::string name = path.string() + ".lock";
    Result<UniqueFd> file = files::open_own(name, O_RDWR | O_CREAT, kFileMode);
    if (!file) {
        throw Error(Errc::system,
                    "saving " + path.string() + ": open " + name + ": " + file.error().detail);
    }
    file_ = std::move(*file);
    const Instant deadline = after(SteadyClock().now(), kLockLimit);
    // Polls, since flock() has no time-out and the holder may be stopped.
    while (::flock(file_.get(), LOCK_EX | LOCK_NB) != 0 &&
           (errno == EWOULDBLOCK || errno == EINTR)) {
        if (SteadyClock().now() >= deadline) {
            throw Error(Errc::deadline_exceeded,
                        "saving " + path.string() + ": another process has held " + name + " for " +
                            format_duration(kLockLimit) +
                            "; lsof tells which, perhaps one that is stopped");
        }
        ::poll(nullptr, 0, kLockPauseMs);
    }
}

}  // namespace regroup::checkpointing
