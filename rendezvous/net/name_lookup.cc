// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/net/name_lookup.h"

#include <atomic>
#include <cstring>
#include <fcntl.h>
#include <netdb.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <thread>
#include <unistd.h>

#include <boost/asio/as_tuple.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>
#include <boost/asio/use_awaitable.hpp>

namespace regroup::net {

namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using ErrorCode = boost::system::error_code;

// A client tries one after the other, and must come to ask again.
constexpr std::size_t kFoundMax = 16;

/// Shared with the thread, which alone has it until it is complete, and then signals the event.
struct Answer {
    ~Answer() {
        if (event >= 0) {
            ::close(event);
        }
    }
    const int event = ::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    std::atomic<bool> is_complete = false;
    int code = 0;
    std::vector<tcp::endpoint> found;
};

void look_up(Answer& answer, const std::string& host, std::uint16_t port) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = AI_ADDRCONFIG | AI_NUMERICSERV;
    addrinfo* list = nullptr;
    answer.code = ::getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list);
    if (answer.code != 0) {
        return;
    }
    const std::unique_ptr<addrinfo, void (*)(addrinfo*)> owner(list, ::freeaddrinfo);
    for (const addrinfo* entry = list; entry != nullptr && answer.found.size() < kFoundMax;
         entry = entry->ai_next) {
        tcp::endpoint endpoint;
        if (entry->ai_addrlen <= endpoint.capacity()) {
            std::memcpy(endpoint.data(), entry->ai_addr, entry->ai_addrlen);
            endpoint.resize(entry->ai_addrlen);
            answer.found.push_back(endpoint);
        }
    }
}

}  // namespace

struct NameLookup::Impl {
    explicit Impl(asio::io_context& io) : done(io), end(io) {}

    void conclude(int code) {
        is_done = true;
        if (code != 0) {
            error = ::gai_strerror(code);
            is_undecided = code == EAI_AGAIN || code == EAI_SYSTEM || code == EAI_MEMORY;
        }
        end.cancel();
    }

    const std::shared_ptr<Answer> answer = std::make_shared<Answer>();
    asio::posix::stream_descriptor done;
    asio::steady_timer end;
    bool is_done = false;
    bool is_undecided = false;
    std::string error;
};

NameLookup::NameLookup(asio::io_context& io, const std::string& host, std::uint16_t port)
    : impl_(std::make_shared<Impl>(io)) {
    const int event =
        impl_->answer->event < 0 ? -1 : ::fcntl(impl_->answer->event, F_DUPFD_CLOEXEC, 0);
    if (event < 0) {
        impl_->conclude(EAI_SYSTEM);
        return;
    }
    impl_->done.assign(event);
    try {
        std::thread([answer = impl_->answer, host, port] {
            look_up(*answer, host, port);
            answer->is_complete = true;
            ::eventfd_write(answer->event, 1);
        }).detach();
    } catch (const std::system_error&) {
        impl_->conclude(EAI_MEMORY);
        return;
    }
    impl_->done.async_wait(asio::posix::stream_descriptor::wait_read,
                           [weak = std::weak_ptr(impl_)](ErrorCode error) {
                               const auto impl = weak.lock();
                               if (impl && !error && impl->answer->is_complete) {
                                   impl->conclude(impl->answer->code);
                               }
                           });
}

NameLookup::~NameLookup() {
    ErrorCode ignored;
    impl_->done.close(ignored);
    impl_->end.cancel();
}

asio::awaitable<void> NameLookup::wait(Duration limit) {
    const auto impl = impl_;
    if (!impl->is_done) {
        impl->end.expires_after(limit);
        co_await impl->end.async_wait(asio::as_tuple(asio::use_awaitable));
    }
}

bool NameLookup::is_done() const {
    return impl_->is_done;
}

const std::vector<tcp::endpoint>& NameLookup::found() const {
    return impl_->answer->found;
}

const std::string& NameLookup::error() const {
    return impl_->error;
}

bool NameLookup::is_undecided() const {
    return impl_->is_undecided;
}

}  // namespace regroup::net
