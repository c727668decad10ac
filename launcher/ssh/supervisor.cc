// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/supervisor.h"

#include <array>
#include <cerrno>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

namespace regroup::launcher::ssh {
namespace {

constexpr Duration kTellLimit = std::chrono::seconds(2);
constexpr std::size_t kReadBytesMax = std::size_t{64} << 10;

// False if the descriptor is not ready in time.
bool await_ready(int fd, short events, const Clock& clock, Instant deadline) {
    while (true) {
        const Duration left = deadline - clock.now();
        const auto ms = std::chrono::ceil<std::chrono::milliseconds>(left).count();
        pollfd entry{fd, events, 0};
        const int ready = ms > 0 ? ::poll(&entry, 1, static_cast<int>(ms)) : 0;
        if (ready >= 0 || errno != EINTR) {
            return ready > 0;
        }
    }
}

}  // namespace

// Appends to the frames what is there. At the end of the stream the launcher is gone.
void Supervisor::take_bytes() {
    std::array<char, kReadBytesMax> bytes{};
    const int fd = watch_ ? watch_->fd() : orders_.get();
    const ssize_t count = ::read(fd, bytes.data(), bytes.size());
    if (count > 0) {
        frames_.feed({bytes.data(), static_cast<std::size_t>(count)});
    } else if (count == 0 || (errno != EAGAIN && errno != EINTR)) {
        is_gone_ = true;
    }
}

Result<std::optional<Order>> Supervisor::read(Duration limit) {
    const SteadyClock clock;
    const Instant deadline = after(clock.now(), limit);
    while (true) {
        Result<std::optional<std::string>> payload = frames_.next();
        if (!payload) {
            return payload.error();
        }
        if (*payload) {
            Result<Order> order = decode(**payload);
            return order ? Result<std::optional<Order>>(*std::move(order)) : order.error();
        }
        if (is_gone_) {
            return std::optional<Order>();
        }
        if (!await_ready(orders_.get(), POLLIN, clock, deadline)) {
            return Failure(Errc::deadline_exceeded,
                           "the launcher has said nothing for " + format_duration(limit));
        }
        take_bytes();
    }
}

void Supervisor::introduce(const Setup& setup) {
    word_ = setup.word;
    host_ = setup.host;
}

Result<void> Supervisor::listen(boost::asio::io_context& io, Handlers handlers) {
    handlers_ = std::move(handlers);
    Result<agent::ReadableWatch> watch = agent::ReadableWatch::open(io, std::move(orders_), [this] {
        take_bytes();
        obey_all();
    });
    if (!watch) {
        return watch.error();
    }
    watch_.emplace(*std::move(watch));
    boost::asio::post(io, [this] { obey_all(); });  // Orders that came with the last one.
    return {};
}

void Supervisor::obey_all() {
    while (true) {
        const Result<std::optional<std::string>> payload = frames_.next();
        if (!payload) {
            is_gone_ = true;  // Without its orders this node would run on unattended.
        }
        if (!payload || !*payload) {
            break;
        }
        const Result<Order> order = decode(**payload);
        if (const auto* signal = order ? std::get_if<Signal>(&*order) : nullptr) {
            handlers_.on_signal(signal->number);
        }
    }
    if (is_gone_) {
        handlers_.on_gone();
    } else {
        watch_->arm();
    }
}

void Supervisor::tell(const Report& report) const {
    const std::string line = line_of(word_, report);
    std::string_view rest = line;
    const SteadyClock clock;
    const Instant deadline = after(clock.now(), kTellLimit);
    while (!rest.empty() && await_ready(STDOUT_FILENO, POLLOUT, clock, deadline)) {
        const ssize_t count = ::write(STDOUT_FILENO, rest.data(), rest.size());
        if (count > 0) {
            rest.remove_prefix(static_cast<std::size_t>(count));
        } else if (errno != EAGAIN && errno != EINTR) {
            return;
        }
    }
}

}  // namespace regroup::launcher::ssh
