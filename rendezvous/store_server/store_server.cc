// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_server/store_server.h"

#include <cerrno>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>

#include "rendezvous/net/accept_loop.h"
#include "rendezvous/net/descriptor.h"
#include "rendezvous/store/store_dispatch.h"
#include "rendezvous/store_server/clients.h"
#include "rendezvous/store_server/socket.h"

namespace regroup::store {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64 * 1024;

}  // namespace

/// Clients are referred to by id and not by reference, since one may disconnect before its turn.
/// Handlers hold `alive_` weakly, which shows whether the server still exists.
class StoreServer::Impl {
   public:
    Impl(boost::asio::io_context& io, Options options)
        : options_(std::move(options)),
          core_(options_.limits),
          ready_events_(io),
          accept_loop_(io, [this](int fd) { accepted(Descriptor(fd)); }) {}
    ~Impl() { ready_events_.release(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void serve(tcp::acceptor acceptor) { accept_loop_.start(std::move(acceptor)); }

    void adopt(tcp::socket socket, std::string_view first_bytes) {
        net::set_close_on_exec(socket.native_handle());
        error_code error;
        socket.non_blocking(true, error);
        Descriptor descriptor(socket.release(error));
        if (!error) {
            admit(std::move(descriptor), first_bytes);
        }
    }

    ClientId attach(FarEnd& far_end) {
        return clients_.add(far_end, RequestParser(options_.limits, options_.older_dialect));
    }

    void receive(ClientId id, std::string_view bytes) {
        while (!bytes.empty()) {
            // Looked up for each request, since sending may reveal that the client disconnected.
            StoreServerClient* client = clients_.find(id);
            if (client == nullptr) {
                return;
            }
            auto request = client->parser.next(bytes);
            if (!request) {
                refuse(id, request.error().detail);
                return;
            }
            if (*request) {
                carry_out(id, *client, **request);
            }
        }
        flush(id);
        charge(id);
    }

    void resume(ClientId id) {
        if (clients_.find(id) != nullptr) {
            clients_.watch_writable(id, false);
            flush(id);
            charge(id);
        }
    }

    void detach(ClientId id) {
        if (StoreServerClient* client = clients_.find(id)) {
            client->far_end = nullptr;
            drop(id);
        }
    }

    Result<void> set(std::string_view key, std::string_view value) {
        auto released = core_.set(key, value);
        if (!released) {
            return released.error();
        }
        release(*released);
        return {};
    }

    void delete_key(std::string_view key) { core_.delete_key(key); }

    [[nodiscard]] std::size_t clients_count() const noexcept { return clients_.count(); }

    [[nodiscard]] boost::asio::ip::address address_of(ClientId id, End end) {
        const StoreServerClient* client = clients_.find(id);
        return client != nullptr && client->socket.is_open()
                   ? endpoint_of(client->socket.get(), end).address()
                   : boost::asio::ip::address();
    }

    void reset() {
        for (const ClientId id : clients_.all()) {
            drop(id);
        }
        core_ = StoreCore(options_.limits);
    }

    void close() {
        accept_loop_.close();
        reset();
    }

   private:
    // ---- Accepting.

    void accepted(Descriptor socket) {
        if (options_.objection) {
            const int fd = socket.get();
            if (const auto why =
                    options_.objection(endpoint_of(fd, End::ours), endpoint_of(fd, End::theirs))) {
                tell_refusal(describe_peer(fd), *why);
                return;
            }
        }
        admit(std::move(socket), {});
    }

    void admit(Descriptor socket, std::string_view first_bytes) {
        prepare_socket(socket.get());
        const std::string peer = describe_peer(socket.get());
        if (!clients_.is_open() && !open_clients()) {
            tell_refusal(peer, "the system has no descriptor left");
            return;
        }
        const auto id =
            clients_.add(std::move(socket), RequestParser(options_.limits, options_.older_dialect));
        if (!id) {
            tell_refusal(peer, "the system has no room for one more connection");
            return;
        }
        receive(*id, first_bytes);
    }

    // ---- Reading.

    bool open_clients() {
        if (!clients_.open()) {
            return false;
        }
        error_code error;
        ready_events_.assign(clients_.fd(), error);
        if (!error) {
            await_ready();
        }
        return !error;
    }

    void await_ready() {
        ready_events_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                                 [this, alive = std::weak_ptr(alive_)](const error_code&) {
                                     if (!alive.expired()) {
                                         serve_ready();
                                     }
                                 });
    }

    void serve_ready() {
        clients_.take_ready(ready_);
        for (const StoreServerClients::Ready& ready : ready_) {
            if (ready.writable) {
                resume(ready.client);
            }
            if (ready.readable) {
                read_some(ready.client);
            }
        }
        await_ready();
    }

    void read_some(ClientId id) {
        const StoreServerClient* client = clients_.find(id);
        if (client == nullptr) {
            return;
        }
        const ssize_t bytes = ::recv(client->socket.get(), read_buffer_.get(), kReadBytes, 0);
        if (bytes > 0) {
            receive(id, std::string_view(read_buffer_.get(), static_cast<std::size_t>(bytes)));
        } else if (bytes == 0 || (errno != EAGAIN && errno != EWOULDBLOCK && errno != EINTR)) {
            drop(id);
        }
    }

    /// Call after everything that a client makes the server hold. Disconnects those that hold most
    /// if all together hold too much.
    void charge(ClientId id) {
        if (const StoreServerClient* client = clients_.find(id)) {
            clients_.charge(
                id, client->parser.held_bytes() + client->outbox.capacity() + core_.wait_bytes(id));
        }
        while (clients_.charged_bytes() > options_.limits.clients_bytes_max) {
            const ClientId most = clients_.most_charged();
            refuse(most, "all clients together hold " + std::to_string(clients_.charged_bytes()) +
                             " bytes, and it holds most of them, " +
                             std::to_string(clients_.find(most)->charged_bytes) +
                             "; the limit is " + std::to_string(options_.limits.clients_bytes_max));
        }
    }

    void carry_out(ClientId id, StoreServerClient& client, Request& request) {
        if (client.parser.dialect() == Dialect::v1_13) {
            // An older client cannot cancel a wait; its next request shows that it stopped waiting.
            core_.cancel_wait(id);
        }
        if (options_.listener != nullptr && !options_.listener->hear(id, request)) {
            return;
        }
        if (options_.listener != nullptr && clients_.find(id) != &client) {
            return;  // The listener's `set` revealed that the client disconnected.
        }
        Released released;
        const auto done = execute(core_, id, request, client.outbox, released);
        if (!done) {
            refuse(id, done.error().detail);
            return;
        }
        limit_outbox(id);
        release(released);
    }

    void release(const Released& released) {
        for (const ClientId id : released) {
            if (StoreServerClient* client = clients_.find(id)) {
                client->outbox.push_back(kStopWaiting);
                flush(id);
                charge(id);
            }
        }
    }

    void limit_outbox(ClientId id) {
        const std::size_t limit = options_.limits.reply_bytes_max;
        if (clients_.find(id)->unsent().size() <= limit) {
            return;
        }
        flush(id);
        const StoreServerClient* client = clients_.find(id);
        if (client != nullptr && client->unsent().size() > limit) {
            refuse(id, "it does not read its replies; " + std::to_string(client->unsent().size()) +
                           " bytes are waiting, the limit is " + std::to_string(limit));
        }
    }

    // ---- Writing.

    /// Sends as much as the socket accepts, and the rest when it is writable.
    void flush(ClientId id) {
        StoreServerClient* client = clients_.find(id);
        if (client == nullptr || client->awaits_writable) {
            return;
        }
        while (!client->unsent().empty()) {
            const std::string_view unsent = client->unsent();
            if (client->far_end != nullptr) {
                const std::size_t taken = client->far_end->take(unsent);
                client->sent_bytes += taken;
                if (taken < unsent.size()) {
                    await_writable(id, *client);
                    return;
                }
                break;
            }
            const ssize_t bytes =
                ::send(client->socket.get(), unsent.data(), unsent.size(), MSG_NOSIGNAL);
            if (bytes >= 0) {
                client->sent_bytes += static_cast<std::size_t>(bytes);
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                await_writable(id, *client);
                return;
            } else if (errno != EINTR) {
                drop(id);
                return;
            }
        }
        client->outbox.clear();
        client->sent_bytes = 0;
        if (client->outbox.capacity() > kReadBytes) {
            client->outbox.shrink_to_fit();
        }
    }

    void await_writable(ClientId id, StoreServerClient& client) {
        // Drops the sent part, so that the outbox of a slow client does not grow without limit. The
        // rest is moved only when it is the smaller part, so the cost is proportional to the bytes
        // sent.
        if (client.sent_bytes > client.unsent().size()) {
            client.outbox.erase(0, client.sent_bytes);
            client.sent_bytes = 0;
        }
        clients_.watch_writable(id, true);
    }

    // ---- Disconnecting.

    void refuse(ClientId id, const std::string& why) {
        const StoreServerClient& client = *clients_.find(id);
        tell_refusal(
            client.far_end != nullptr ? client.far_end->name() : describe_peer(client.socket.get()),
            why);
        drop(id);
    }

    void tell_refusal(const std::string& peer, const std::string& why) const {
        if (options_.on_refusal) {
            options_.on_refusal("the store disconnected " + peer + ": " + why);
        }
    }

    void drop(ClientId id) {
        const StoreServerClient* client = clients_.find(id);
        FarEnd* const far_end = client != nullptr ? client->far_end : nullptr;
        core_.cancel_wait(id);
        clients_.erase(id);
        if (far_end != nullptr) {
            far_end->closed();
        }
        if (options_.listener != nullptr) {
            options_.listener->part(id);
        }
    }

    const Options options_;
    StoreCore core_;
    StoreServerClients clients_;
    std::vector<StoreServerClients::Ready> ready_;
    boost::asio::posix::stream_descriptor ready_events_;  ///< Borrows the descriptor of clients_.
    net::AcceptLoop accept_loop_;
    std::unique_ptr<char[]> read_buffer_ = std::make_unique_for_overwrite<char[]>(kReadBytes);
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
    impl_->receive(client, bytes);
}

void StoreServer::resume(ClientId client) {
    impl_->resume(client);
}

void StoreServer::detach(ClientId client) {
    impl_->detach(client);
}

Result<void> StoreServer::set(std::string_view key, std::string_view value) {
    return impl_->set(key, value);
}

void StoreServer::delete_key(std::string_view key) {
    impl_->delete_key(key);
}

std::size_t StoreServer::clients_count() const noexcept {
    return impl_->clients_count();
}

boost::asio::ip::address StoreServer::local_address(ClientId client) const {
    return impl_->address_of(client, End::ours);
}

boost::asio::ip::address StoreServer::peer_address(ClientId client) const {
    return impl_->address_of(client, End::theirs);
}

void StoreServer::reset() {
    impl_->reset();
}

void StoreServer::close() {
    impl_->close();
}

}  // namespace regroup::store
