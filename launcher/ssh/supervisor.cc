// SPDX-License-Identifier: Apache-2.0
#include "launcher/ssh/supervisor.h"

#include <array>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <string_view>
#include <unistd.h>
#include <utility>

#include <boost/asio/post.hpp>

namespace regroup::launcher::ssh {
namespace {

constexpr Duration kTellLimit = std::chrono::minutes(1);
constexpr Duration kLifeInterval = std::chrono::seconds(5);
constexpr std::size_t kOutputBytesMax = std::size_t{64} << 10;

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

void Supervisor::take_bytes() {
    std::array<char, kOutputBytesMax> bytes{};
    const ssize_t count = ::read(orders_.get(), bytes.data(), bytes.size());
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

void Supervisor::tell(const Report& report) const {
    const std::string text = line(report);
    std::string_view rest = text;
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

// ---- In the event loop.

Listener::Listener(boost::asio::io_context& io, Supervisor& supervisor, agent::OutputRelay& output,
                   Handlers handlers)
    : supervisor_(supervisor), output_(output), handlers_(std::move(handlers)), life_(io) {}

Result<std::unique_ptr<Listener>> Listener::open(boost::asio::io_context& io,
                                                 Supervisor& supervisor, agent::OutputRelay& output,
                                                 Handlers handlers) {
    std::unique_ptr<Listener> listener(new Listener(io, supervisor, output, std::move(handlers)));
    UniqueFd orders(::fcntl(supervisor.orders_.get(), F_DUPFD_CLOEXEC, 0));
    if (!orders) {
        return system_failure("cannot watch the connection to the launcher", errno);
    }
    Result<agent::ReadableWatch> watch =
        agent::ReadableWatch::open(io, std::move(orders), [self = listener.get()] {
            self->supervisor_.take_bytes();
            self->obey_all();
        });
    if (!watch) {
        return watch.error();
    }
    listener->watch_.emplace(*std::move(watch));
    listener->show_life();
    // Orders that came with the last one.
    boost::asio::post(io, [self = listener.get()] { self->obey_all(); });
    return listener;
}

void Listener::obey_all() {
    while (true) {
        const Result<std::optional<std::string>> payload = supervisor_.frames_.next();
        if (!payload) {
            supervisor_.is_gone_ = true;  // Without its orders this node would run on unattended.
        }
        if (!payload || !*payload) {
            break;
        }
        const Result<Order> order = decode(**payload);
        if (const auto* signal = order ? std::get_if<Signal>(&*order) : nullptr) {
            handlers_.on_signal(signal->number);
        }
    }
    if (supervisor_.is_gone_) {
        handlers_.on_gone();
    } else {
        watch_->arm();
    }
}

// Output that nobody confirms ends a connection. A quiet node would never notice that its
// launcher's machine is gone.
void Listener::show_life() {
    life_.expires_after(kLifeInterval);
    life_.async_wait([this](const boost::system::error_code& error) {
        if (!error) {
            output_.pass_on(/*to_stderr=*/false, supervisor_.line(Alive{}), 1);
            show_life();
        }
    });
}

}  // namespace regroup::launcher::ssh
