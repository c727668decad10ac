// SPDX-License-Identifier: Apache-2.0
#include "agent/process/quit_signals.h"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <map>
#include <sys/socket.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/signal_set.hpp>

#include "agent/process/readable_watch.h"
#include "agent/process/warden.h"

namespace regroup::agent {

struct QuitSignals::State {
    State(boost::asio::io_context& io, Handlers handlers_in)
        : direct(io), handlers(std::move(handlers_in)) {}

    /// How often a signal came, directly and through the warden.
    struct Tally {
        int direct = 0;
        int passed_on = 0;
    };

    void count(int number, int Tally::* way) {
        Tally& tally = tallies[number];
        const int before = std::max(tally.direct, tally.passed_on);
        if (++(tally.*way) > before) {
            handlers.on_signal(number);
        }
    }

    void read_warden();

    boost::asio::signal_set direct;
    std::vector<int> listened;
    Handlers handlers;
    std::optional<ReadableWatch> warden;
    std::map<int, Tally> tallies;
};

void QuitSignals::State::read_warden() {
    std::array<unsigned char, 64> numbers{};
    const ssize_t received = ::recv(warden->fd(), numbers.data(), numbers.size(), MSG_DONTWAIT);
    if (received == 0 || (received < 0 && errno != EAGAIN && errno != EINTR)) {
        handlers.on_warden_gone();
        return;
    }
    for (ssize_t index = 0; index < received; ++index) {
        count(numbers.at(static_cast<std::size_t>(index)), &Tally::passed_on);
    }
    warden->arm();
}

QuitSignals::QuitSignals(std::shared_ptr<State> state) : state_(std::move(state)) {}
QuitSignals::QuitSignals(QuitSignals&&) noexcept = default;
QuitSignals& QuitSignals::operator=(QuitSignals&&) noexcept = default;

// The ending is decided. Slurm may send the signal once more while the process exits.
QuitSignals::~QuitSignals() {
    if (!state_) {
        return;
    }
    boost::system::error_code ignored;
    state_->direct.clear(ignored);
    for (const int number : state_->listened) {
        std::signal(number, SIG_IGN);
    }
}

Result<QuitSignals> QuitSignals::listen(boost::asio::io_context& io, int warden_fd,
                                        const std::vector<int>& signals, Handlers handlers) {
    auto state = std::make_shared<State>(io, std::move(handlers));
    for (const int number : signals) {
        if (!is_ignored(number)) {
            state->direct.add(number);
            state->listened.push_back(number);
        }
    }
    wait(state);
    if (warden_fd >= 0) {
        UniqueFd own(::fcntl(warden_fd, F_DUPFD_CLOEXEC, 0));
        if (!own) {
            return system_failure("listen to the warden", errno);
        }
        auto watch =
            ReadableWatch::open(io, std::move(own), [held = state.get()] { held->read_warden(); });
        if (!watch) {
            return watch.error();
        }
        state->warden.emplace(*std::move(watch));
        state->warden->arm();
    }
    return QuitSignals(std::move(state));
}

void QuitSignals::wait(const std::shared_ptr<State>& state) {
    state->direct.async_wait(
        [weak = std::weak_ptr<State>(state)](const boost::system::error_code& error, int number) {
            const std::shared_ptr<State> held = weak.lock();
            if (held && !error) {
                wait(held);
                held->count(number, &State::Tally::direct);
            }
        });
}

}  // namespace regroup::agent
