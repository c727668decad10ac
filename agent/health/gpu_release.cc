// SPDX-License-Identifier: Apache-2.0
#include "agent/health/gpu_release.h"

#include <array>
#include <cerrno>
#include <span>
#include <sys/socket.h>
#include <utility>
#include <vector>

#include "agent/health/gpu_holders.h"
#include "rendezvous/base/text.h"

namespace regroup::agent {

namespace {

// A shorter wait is no news.
constexpr Duration kUntold = std::chrono::seconds(1);
constexpr std::size_t kAnswerMax = std::size_t{1} << 16U;

}  // namespace

GpuRelease::GpuRelease(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
                       GpuReleaseOptions options, Say say)
    : io_(io),
      clock_(clock),
      launcher_(launcher),
      options_(std::move(options)),
      say_(std::move(say)),
      timer_(io) {}

void GpuRelease::add(const std::set<pid_t>& ended) {
    if (!options_.wanted) {
        return;
    }
    added_.insert(ended.begin(), ended.end());
    if (watcher_) {
        begin();
    }
}

void GpuRelease::begin() {
    if (added_.empty()) {
        return;
    }
    Result<void> asked = watcher_ ? Result<void>() : start_watcher();
    if (asked) {
        asked = ask();
    }
    if (!asked) {
        added_.clear();
        fail(asked.error().detail);
    }
}

void GpuRelease::when_free(std::uint64_t key, Give give) {
    begin();
    if (!watcher_) {
        give();
        return;
    }
    if (held_back_.empty()) {
        held_back_at_ = clock_.now();
    }
    held_back_[key] = std::move(give);
}

bool GpuRelease::hurry(std::uint64_t key) {
    const auto held = held_back_.extract(key);
    if (held) {
        held.mapped()();
    }
    return !held.empty();
}

void GpuRelease::stop() {
    timer_.cancel();
    watcher_.reset();
    former_watchers_.clear();
    added_.clear();
    held_back_.clear();
}

Result<void> GpuRelease::start_watcher() {
    std::array<int, 2> ends{};
    if (::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends.data()) != 0) {
        return system_failure("a socket for it", errno);
    }
    UniqueFd own(ends[0]);
    const UniqueFd other(ends[1]);
    ProcessSpec spec;
    spec.executable = options_.program;
    spec.arguments = {"regroup", health::kHoldersWord, options_.places.root.string(),
                      options_.places.nvml};
    spec.environment = own_environment();
    spec.stdin_fd = other.get();
    Result<ChildProcess> process = launcher_.launch(spec);
    if (!process) {
        return process.error();
    }
    Result<ReadableWatch> socket = ReadableWatch::open(io_, std::move(own), [this] { hear(); });
    if (!socket) {
        return socket.error();
    }
    watcher_.emplace(Watcher{*std::move(process), *std::move(socket)});
    const pid_t pid = watcher_->process.pid();
    watcher_->process.async_wait([this, pid](ExitStatus status) { watcher_ended(pid, status); });
    watcher_->socket.arm();
    asked_ = 0;
    return {};
}

Result<void> GpuRelease::ask() {
    const std::string pids = joined(added_, " ");
    // If it has ended already, its process will say how.
    if (::send(watcher_->socket.fd(), pids.data(), pids.size(), MSG_DONTWAIT | MSG_NOSIGNAL) < 0 &&
        errno != EPIPE && errno != ECONNRESET) {
        return system_failure("its socket", errno);
    }
    ++asked_;
    holders_.merge(added_);
    added_.clear();
    timer_.expires_after(options_.limit);
    timer_.async_wait([this](const boost::system::error_code& cancelled) {
        // A later end may have begun the time anew while this call was under way.
        if (!cancelled && watcher_ && timer_.expiry() <= clock_.now()) {
            say_("GPU memory of ended processes (pid " + joined(holders_, ", ") +
                 ") is still in use after " + format_duration(options_.limit) +
                 " (REGROUP_GPU_MEMORY_TIMEOUT); their successors do not wait any longer and may "
                 "lack memory");
            finish();
        }
    });
    return {};
}

void GpuRelease::hear() {
    std::array<char, kAnswerMax> bytes;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    while (watcher_) {
        const ssize_t count =
            ::recv(watcher_->socket.fd(), bytes.data(), bytes.size(), MSG_DONTWAIT);
        if (count > 0) {
            take({bytes.data(), static_cast<std::size_t>(count)});
        } else if (count < 0 && (errno == EAGAIN || errno == EINTR)) {
            watcher_->socket.arm();
            return;
        } else {
            return;  // It has ended, and its process says how.
        }
    }
}

void GpuRelease::take(const std::string& answer) {
    std::vector<std::string_view> words = split(answer, ' ');
    if (parse_number<std::uint64_t>(words.front()) != asked_) {
        return;  // Others were added meanwhile; their answer follows.
    }
    holders_.clear();
    for (const std::string_view word : std::span(words).subspan(1)) {
        holders_.insert(parse_number<pid_t>(word).value_or(0));
    }
    if (!holders_.empty()) {
        return;
    }
    const Duration waited = clock_.now() - held_back_at_;
    if (!held_back_.empty() && waited > kUntold) {
        say_("successors of ended workers waited " + format_duration(waited) +
             " until the driver had freed the GPU memory");
    }
    finish();
}

void GpuRelease::watcher_ended(pid_t pid, ExitStatus status) {
    if (watcher_ && watcher_->process.pid() == pid) {
        fail(status.describe());
    }
    former_watchers_.remove_if([pid](const ChildProcess& one) { return one.pid() == pid; });
}

void GpuRelease::fail(const std::string& why) {
    say_(
        "not known whether the GPU memory of ended workers is free: the process that asks the "
        "driver " +
        why + "; their successors do not wait");
    finish();
}

// The closed socket ends the watcher. A signal could leave it stuck in the driver, too, and whoever
// ends leftovers would wait for it.
void GpuRelease::finish() {
    timer_.cancel();
    holders_.clear();
    if (watcher_) {
        former_watchers_.push_back(std::move(watcher_->process));
        watcher_.reset();
    }
    // One of them may drop another, or hold back a new one.
    std::vector<std::uint64_t> keys;
    for (const auto& [key, give] : held_back_) {
        keys.push_back(key);
    }
    for (const std::uint64_t key : keys) {
        hurry(key);
    }
}

}  // namespace regroup::agent
