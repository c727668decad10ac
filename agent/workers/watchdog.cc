// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/watchdog.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <vector>

#include <nlohmann/json.hpp>

#include "agent/process/process_tree.h"
#include "rendezvous/json/json_text.h"

namespace regroup::agent {

namespace {

using nlohmann::json;

// A message fits an atomic write to a pipe. The number of open sections is bounded.
constexpr std::size_t kLineBytesMax = 4096;
constexpr std::size_t kLimitsMax = 65536;

double wall_clock_seconds() {
    return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch())
        .count();
}

}  // namespace

Watchdog::Watchdog(boost::asio::io_context& io, OnLate on_late)
    : io_(io), on_late_(std::move(on_late)), timer_(io) {}

Watchdog::~Watchdog() {
    if (!path_.empty()) {
        ::unlink(path_.c_str());
    }
}

Result<void> Watchdog::open(const std::string& path) {
    struct stat status{};
    if (::lstat(path.c_str(), &status) == 0 && S_ISFIFO(status.st_mode)) {
        ::unlink(path.c_str());
    }
    constexpr mode_t kOwnerOnly = 0600;
    if (::mkfifo(path.c_str(), kOwnerOnly) != 0) {
        return system_failure("cannot make the watchdog's FIFO " + path, errno);
    }
    path_ = path;
    constexpr int kFlags = O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC;
    UniqueFd reading(::open(path.c_str(), O_RDONLY | kFlags));
    own_end_ = UniqueFd(::open(path.c_str(), O_WRONLY | kFlags));
    if (!reading || !own_end_) {
        return system_failure("cannot open the watchdog's FIFO " + path, errno);
    }
    if (::fstat(reading.get(), &status) != 0 || !S_ISFIFO(status.st_mode)) {
        return system_failure("the watchdog's FIFO " + path + " was replaced", EEXIST);
    }
    Result<ReadableWatch> watch = ReadableWatch::open(io_, std::move(reading), [this] { read(); });
    if (!watch) {
        return watch.error();
    }
    fifo_.emplace(std::move(*watch));
    fifo_->arm();
    return {};
}

void Watchdog::read() {
    std::array<char, 4 * kLineBytesMax> buffer;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    // One read for each event, so that an endless writer does not block the event loop.
    const ssize_t count = ::read(fifo_->fd(), buffer.data(), buffer.size());
    if (count > 0) {
        partial_.append(buffer.data(), static_cast<std::size_t>(count));
        std::size_t begin = 0;
        for (std::size_t end = 0; (end = partial_.find('\n', begin)) != partial_.npos;
             begin = end + 1) {
            take(std::string_view(partial_).substr(begin, end - begin));
        }
        partial_.erase(0, begin);
        if (partial_.size() > kLineBytesMax) {
            partial_.clear();  // Not a message of the timer.
        }
    }
    arm();
    fifo_->arm();
}

void Watchdog::take(std::string_view line) {
    const json message = parse_json(line);
    const auto number = [&](const char* key) {
        return message.is_object() && message.contains(key) && message[key].is_number();
    };
    if (!number("pid") || !message["pid"].is_number_integer() || !number("expiration_time") ||
        !message.contains("scope_id") || !message["scope_id"].is_string()) {
        return;
    }
    const std::pair key(message["pid"].get<pid_t>(), message["scope_id"].get<std::string>());
    const double expires = message["expiration_time"].get<double>();
    const bool has_signal = number("signal") && message["signal"].is_number_integer();
    const int signal = has_signal ? message["signal"].get<int>() : SIGKILL;
    if (expires < 0) {
        limits_.erase(key);
    } else if (signal > 0 && signal < NSIG &&
               (limits_.contains(key) || limits_.size() < kLimitsMax)) {
        limits_[key] = Limit{expires, signal};
    }
}

void Watchdog::arm() {
    const auto first = std::min_element(
        limits_.begin(), limits_.end(),
        [](const auto& a, const auto& b) { return a.second.expires < b.second.expires; });
    if (first == limits_.end()) {
        timer_.cancel();
        return;
    }
    // The wall clock may be set meanwhile, so check it once a second.
    const double left = std::clamp(first->second.expires - wall_clock_seconds(), 0.0, 1.0);
    timer_.expires_after(std::chrono::duration_cast<std::chrono::steady_clock::duration>(
        std::chrono::duration<double>(left)));
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            check();
        }
    });
}

void Watchdog::check() {
    const double now = wall_clock_seconds();
    std::vector<std::pair<std::pair<pid_t, std::string>, Limit>> late;
    for (const auto& [key, limit] : limits_) {
        if (limit.expires <= now) {
            late.emplace_back(key, limit);
        }
    }
    const std::vector<pid_t> ours = late.empty() ? std::vector<pid_t>() : descendants(::getpid());
    for (const auto& [key, limit] : late) {
        limits_.erase(key);
        // Other processes have ended, or are not ours.
        if (std::find(ours.begin(), ours.end(), key.first) != ours.end()) {
            end(key.first, key.second, limit.signal);
        }
    }
    // Forget ended processes: another process may get their pid.
    if (!late.empty()) {
        std::erase_if(limits_, [&](const auto& entry) {
            return std::find(ours.begin(), ours.end(), entry.first.first) == ours.end();
        });
    }
    arm();
}

void Watchdog::end(pid_t pid, const std::string& scope, int signal) {
    on_late_("watchdog: pid " + std::to_string(pid) + " has not left its section '" + scope +
             "' in time; sending it signal " + std::to_string(signal));
    ::kill(pid, signal);
}

}  // namespace regroup::agent
