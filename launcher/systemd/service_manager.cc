// SPDX-License-Identifier: Apache-2.0
#include "launcher/systemd/service_manager.h"

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <optional>
#include <string_view>
#include <sys/socket.h>
#include <sys/time.h>
#include <sys/un.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::launcher {

namespace {

using std::chrono::microseconds;

constexpr microseconds kStatusInterval = std::chrono::seconds(2);
constexpr microseconds kIntervalMin = std::chrono::milliseconds(1);
constexpr timeval kSendLimit{1, 0};
constexpr const char* kSocket = "NOTIFY_SOCKET";
constexpr const char* kWatchdog = "WATCHDOG_USEC";
constexpr const char* kWatchdogPid = "WATCHDOG_PID";

std::string take(const char* name) {
    const char* value = std::getenv(name);
    std::string text = value == nullptr ? "" : value;
    ::unsetenv(name);
    return text;
}

/// One message to the socket at `address`. `flags`: MSG_DONTWAIT for one that may be lost if
/// systemd is busy; it must not hold up the event loop.
Result<void> tell(const std::string& address, const std::string& text, int flags = 0) {
    sockaddr_un where{};
    where.sun_family = AF_UNIX;
    const bool is_address = address.starts_with('/') || address.starts_with('@');
    if (!is_address || address.size() < 2 || address.size() >= sizeof where.sun_path) {
        return Failure(Errc::invalid_argument,
                       "NOTIFY_SOCKET '" + address + "' is no path of a socket, nor @NAME");
    }
    std::copy(address.begin(), address.end(), where.sun_path);
    // "@NAME" is in no file system. Such a name has no zero byte at its end.
    const bool is_abstract = address.front() == '@';
    if (is_abstract) {
        where.sun_path[0] = '\0';
    }
    const std::size_t bytes =
        offsetof(sockaddr_un, sun_path) + address.size() + (is_abstract ? 0 : 1);
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    if (fd < 0) {
        return system_failure("cannot open a socket for NOTIFY_SOCKET", errno);
    }
    ::setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &kSendLimit, sizeof kSendLimit);
    const ssize_t sent =
        ::sendto(fd, text.data(), text.size(), MSG_NOSIGNAL | flags,
                 reinterpret_cast<const sockaddr*>(&where), static_cast<socklen_t>(bytes));
    const int error = errno;
    ::close(fd);
    if (sent < 0) {
        return system_failure("cannot write to NOTIFY_SOCKET " + address, error);
    }
    return {};
}

}  // namespace

struct ServiceManager::Watch : std::enable_shared_from_this<Watch> {
    Watch(boost::asio::io_context& io, std::string address_in, std::function<std::string()> ask)
        : timer(io), address(std::move(address_in)), status(std::move(ask)) {}

    void wait() {
        timer.expires_after(interval);
        timer.async_wait([weak = weak_from_this()](boost::system::error_code error) {
            const auto watch = weak.lock();
            if (watch && !error) {
                watch->tick();
            }
        });
    }

    void tick() {
        std::string text = is_watched ? "WATCHDOG=1\n" : "";
        std::string now = is_stopping ? told : printable(status());
        if (now != told) {
            text += "STATUS=" + now + "\n";
        }
        if (text.empty() || tell(address, text, MSG_DONTWAIT)) {
            told = std::move(now);
        }  // Otherwise the next tick says it again.
        wait();
    }

    boost::asio::steady_timer timer;
    const std::string address;
    const std::function<std::string()> status;
    microseconds interval = kStatusInterval;
    std::string told;  ///< The last status.
    bool is_watched = false;
    bool is_stopping = false;
};

ServiceManager::ServiceManager() : address_(take(kSocket)) {
    const std::optional<std::int64_t> limit = parse_number<std::int64_t>(take(kWatchdog));
    const std::string pid = take(kWatchdogPid);
    if (limit && *limit > 0 && (pid.empty() || parse_number<std::int64_t>(pid) == ::getpid())) {
        watchdog_ = microseconds(*limit);
    }
}

ServiceManager::~ServiceManager() = default;
ServiceManager::ServiceManager(ServiceManager&& other) noexcept = default;
ServiceManager& ServiceManager::operator=(ServiceManager&& other) noexcept = default;

Result<void> ServiceManager::ready(boost::asio::io_context& io,
                                   std::function<std::string()> status) {
    if (address_.empty()) {
        return {};
    }
    watch_ = std::make_shared<Watch>(io, address_, std::move(status));
    watch_->told = printable(watch_->status());
    const Result<void> told = tell(address_, "READY=1\nSTATUS=" + watch_->told + "\n");
    if (watchdog_ > microseconds::zero()) {
        watch_->is_watched = true;
        watch_->interval = std::clamp(watchdog_ / 2, kIntervalMin, kStatusInterval);
    }
    watch_->wait();
    return told;
}

void ServiceManager::stopping(const std::string& why) {
    if (watch_ && !std::exchange(watch_->is_stopping, true)) {
        watch_->told = printable(why);
        static_cast<void>(tell(address_, "STOPPING=1\nSTATUS=" + watch_->told + "\n"));
    }
}

}  // namespace regroup::launcher
