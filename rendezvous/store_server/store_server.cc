// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_server/store_server.h"

#include <utility>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "rendezvous/net/accept_loop.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/store/peer_socket.h"
#include "rendezvous/store_server/socket.h"

namespace regroup::store {

using boost::asio::ip::tcp;
using boost::system::error_code;

/// Handlers hold `alive_` weakly, which shows whether the server still exists.
class StoreServer::Impl {
   public:
    Impl(boost::asio::io_context& io, Options options)
        : objection_(std::move(options.objection)),
          engine_(static_cast<StoreEngine::Options&>(options)),
          ready_events_(io),
          accept_loop_(
              io, [this](int fd) { accepted(UniqueFd(fd)); },
              [say = options.on_refusal](const std::string& reason) {
                  if (say) {
                      say("the store accepts no more clients for now: " + reason);
                  }
              }) {}
    ~Impl() { ready_events_.release(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    [[nodiscard]] StoreEngine& engine() noexcept { return engine_; }

    void serve(tcp::acceptor acceptor) { accept_loop_.start(std::move(acceptor)); }

    void adopt(tcp::socket socket, std::string_view first_bytes) {
        net::set_close_on_exec(socket.native_handle());
        error_code error;
        socket.non_blocking(true, error);
        UniqueFd descriptor(socket.release(error));
        if (!error) {
            admit(std::move(descriptor), first_bytes);
        }
    }

    [[nodiscard]] boost::asio::ip::address address_of(ClientId id, End end) {
        return endpoint_of(engine_.socket_of(id), end).address();
    }

    ClientId attach(FarEnd& far_end) {
        const ClientId client = engine_.attach(far_end);
        watch_ready();
        return client;
    }

    void close() {
        accept_loop_.close();
        engine_.reset();
    }

   private:
    void accepted(UniqueFd socket) {
        if (objection_) {
            const int fd = socket.get();
            if (const auto why =
                    objection_(endpoint_of(fd, End::ours), endpoint_of(fd, End::theirs))) {
                engine_.tell_refusal(describe_peer(fd), *why);
                return;
            }
        }
        admit(std::move(socket), {});
    }

    void admit(UniqueFd socket, std::string_view first_bytes) {
        engine_.admit({std::move(socket)}, first_bytes);
        watch_ready();
    }

    void watch_ready() {
        if (!ready_events_.is_open() && engine_.ready_fd() >= 0) {
            error_code error;
            ready_events_.assign(engine_.ready_fd(), error);
            if (!error) {
                await_ready();
            }
        }
    }

    void await_ready() {
        ready_events_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                 [this, alive = std::weak_ptr(alive_)](const error_code&) {
                                     if (!alive.expired()) {
                                         engine_.serve_ready();
                                         await_ready();
                                     }
                                 });
    }

    const Objection objection_;
    StoreEngine engine_;
    boost::asio::posix::stream_descriptor ready_events_;  ///< Borrows the engine's descriptor.
    net::AcceptLoop accept_loop_;
    std::shared_ptr<const bool> alive_ = std::make_shared<const bool>(true);
};

StoreServer::StoreServer(boost::asio::io_context& io) : StoreServer(io, Options()) {}

StoreServer::StoreServer(boost::asio::io_context& io, Options options)
    : impl_(std::make_unique<Impl>(io, std::move(options))) {}

StoreServer::~StoreServer() = default;

void StoreServer::serve(tcp::acceptor acceptor) {
    impl_->serve(std::move(acceptor));
}

void StoreServer::adopt(tcp::socket socket, std::string_view first_bytes) {
    impl_->adopt(std::move(socket), first_bytes);
}

ClientId StoreServer::attach(FarEnd& far_end) {
    return impl_->attach(far_end);
}

void StoreServer::receive(ClientId client, std::string_view bytes) {
    impl_->engine().receive(client, bytes);
}

void StoreServer::resume(ClientId client) {
    impl_->engine().resume(client);
}

void StoreServer::detach(ClientId client) {
    impl_->engine().detach(client);
}

Result<void> StoreServer::set(std::string_view key, std::string_view value) {
    return impl_->engine().set(key, value);
}

void StoreServer::delete_key(std::string_view key) {
    impl_->engine().delete_key(key);
}

std::size_t StoreServer::clients_count() const noexcept {
    return impl_->engine().clients_count();
}

boost::asio::ip::address StoreServer::local_address(ClientId client) const {
    return impl_->address_of(client, End::ours);
}

boost::asio::ip::address StoreServer::peer_address(ClientId client) const {
    return impl_->address_of(client, End::theirs);
}

void StoreServer::reset() {
    impl_->engine().reset();
}

void StoreServer::close() {
    impl_->close();
}

}  // namespace regroup::store
