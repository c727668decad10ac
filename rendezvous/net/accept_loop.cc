// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/accept_loop.h"

#include <cerrno>
#include <chrono>
#include <cstdint>
#include <optional>
#include <sys/socket.h>
#include <system_error>
#include <utility>

#include <boost/asio/steady_timer.hpp>

#include "rendezvous/net/descriptor.h"

namespace regroup::net {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

/// The most sockets accepted in a row, so that other work of the thread gets its turn.
constexpr int kAcceptsPerTurn = 64;
/// How long accepting pauses when descriptors or memory have run out.
constexpr std::chrono::milliseconds kShortagePause{100};

}  // namespace

struct AcceptLoop::Impl {
    Impl(boost::asio::io_context& io, OnSocket on_socket_in, OnShortage on_shortage_in)
        : on_socket(std::move(on_socket_in)),
          on_shortage(std::move(on_shortage_in)),
          shortage_pause(io) {}

    /// Each start, pause and close makes the handlers before it void.
    [[nodiscard]] auto handler() {
        return [weak = self, number = turn](const error_code&) {
            const auto impl = weak.lock();
            if (impl && impl->turn == number) {
                impl->accept_some();
            }
        };
    }

    void wait() {
        ++turn;
        acceptor->async_wait(tcp::acceptor::wait_read, handler());
    }

    /// Not with Asio's accept, whose descriptors are inherited by programs that this process
    /// starts.
    void accept_some() {
        const std::uint64_t number = turn;
        for (int i = 0; i < kAcceptsPerTurn; ++i) {
            const int fd = ::accept4(acceptor->native_handle(), nullptr, nullptr,
                                     SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0) {
                is_short = false;
                on_socket(fd);
                if (turn != number) {
                    return;
                }
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                break;
            } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                const int error_number = errno;
                // The connection stays in the backlog and would wake the loop again at once.
                ++turn;
                shortage_pause.expires_after(kShortagePause);
                shortage_pause.async_wait(handler());
                if (!std::exchange(is_short, true) && on_shortage) {
                    on_shortage(std::generic_category().message(error_number));
                }
                return;
            }
            // Any other error is that of one connection which failed before it was accepted.
        }
        wait();
    }

    std::weak_ptr<Impl> self;
    OnSocket on_socket;
    OnShortage on_shortage;
    bool is_short = false;
    std::optional<tcp::acceptor> acceptor;
    boost::asio::steady_timer shortage_pause;
    std::uint64_t turn = 0;
};

AcceptLoop::AcceptLoop(boost::asio::io_context& io, OnSocket on_socket, OnShortage on_shortage)
    : impl_(std::make_shared<Impl>(io, std::move(on_socket), std::move(on_shortage))) {
    impl_->self = impl_;
}

AcceptLoop::~AcceptLoop() {
    close();
}

void AcceptLoop::start(tcp::acceptor acceptor) {
    impl_->acceptor.emplace(std::move(acceptor));
    set_close_on_exec(impl_->acceptor->native_handle());
    error_code error;
    impl_->acceptor->non_blocking(true, error);
    impl_->wait();
}

void AcceptLoop::pause() {
    ++impl_->turn;
}

void AcceptLoop::resume() {
    if (impl_->acceptor) {
        impl_->wait();
    }
}

void AcceptLoop::close() {
    ++impl_->turn;
    impl_->shortage_pause.cancel();
    impl_->acceptor.reset();
}

}  // namespace regroup::net
