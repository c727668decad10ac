// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_server/store_server.h"

#include <cerrno>
#include <chrono>
#include <optional>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>
#include <vector>

#include <boost/asio/posix/stream_descriptor.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/net/descriptor.h"
#include "rendezvous/store/store_dispatch.h"
#include "rendezvous/store_server/clients.h"
#include "rendezvous/store_server/socket.h"

namespace regroup::store {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64 * 1024;
/// The most clients accepted in a row, so that connected clients get their turn.
constexpr int kAcceptsPerTurn = 64;
/// How long accepting pauses when descriptors or memory have run out.
constexpr std::chrono::milliseconds kAcceptPause{100};

}  // namespace

/// Clients are referred to by id and not by reference, since one may disconnect before its turn.
/// Handlers hold `alive_` weakly, which shows whether the server still exists.
class StoreServer::Impl {
   public:
    Impl(boost::asio::io_context& io, Options options)
        : options_(std::move(options)),
          core_(options_.limits),
          ready_events_(io),
          accept_pause_(io) {}
    ~Impl() { ready_events_.release(); }
    Impl(const Impl&) = delete;
    Impl& operator=(const Impl&) = delete;

    void serve(tcp::acceptor acceptor) {
        acceptor_.emplace(std::move(acceptor));
        ++acceptor_number_;
        net::set_close_on_exec(acceptor_->native_handle());
        error_code error;
        acceptor_->non_blocking(true, error);
        await_acceptable();
    }

    void adopt(tcp::socket socket, std::string_view first_bytes) {
        net::set_close_on_exec(socket.native_handle());
        error_code error;
        socket.non_blocking(true, error);
        Descriptor descriptor(socket.release(error));
        if (!error) {
            admit(std::move(descriptor), first_bytes);
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
        return client != nullptr ? endpoint_of(client->socket.get(), end).address()
                                 : boost::asio::ip::address();
    }

    void reset() {
        for (const ClientId id : clients_.all()) {
            drop(id);
        }
        core_ = StoreCore(options_.limits);
    }

    void close() {
        acceptor_.reset();
        accept_pause_.cancel();
        reset();
    }

   private:
    // ---- Accepting.

    void await_acceptable() {
        acceptor_->async_wait(
            tcp::acceptor::wait_read,
            [this, alive = std::weak_ptr(alive_), number = acceptor_number_](const error_code&) {
                if (!alive.expired() && acceptor_ && acceptor_number_ == number) {
                    accept_some();
                }
            });
    }

    /// Not with Asio's accept, whose descriptors are inherited by programs that this process
    /// starts.
    void accept_some() {
        for (int i = 0; i < kAcceptsPerTurn; ++i) {
            Descriptor socket(::accept4(acceptor_->native_handle(), nullptr, nullptr,
                                        SOCK_NONBLOCK | SOCK_CLOEXEC));
            if (socket.is_open()) {
                admit(std::move(socket), {});
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                break;
            } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // The connection stays in the backlog and would wake the loop again at once.
                pause_accepting();
                return;
            }
            // Any other error is that of one connection which failed before it was accepted.
        }
        await_acceptable();
    }

    void pause_accepting() {
        accept_pause_.expires_after(kAcceptPause);
        accept_pause_.async_wait(
            [this, alive = std::weak_ptr(alive_), number = acceptor_number_](const error_code&) {
                if (!alive.expired() && acceptor_ && acceptor_number_ == number) {
                    accept_some();
                }
            });
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
            if (ready.writable && clients_.find(ready.client) != nullptr) {
                clients_.watch_writable(ready.client, false);
                flush(ready.client);
                charge(ready.client);
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
        tell_refusal(describe_peer(clients_.find(id)->socket.get()), why);
        drop(id);
    }

    void tell_refusal(const std::string& peer, const std::string& why) const {
        if (options_.on_refusal) {
            options_.on_refusal("the store disconnected " + peer + ": " + why);
        }
    }

    void drop(ClientId id) {
        core_.cancel_wait(id);
        clients_.erase(id);
        if (options_.listener != nullptr) {
            options_.listener->part(id);
        }
    }

    const Options options_;
    StoreCore core_;
    StoreServerClients clients_;
    std::vector<StoreServerClients::Ready> ready_;
    boost::asio::posix::stream_descriptor ready_events_;  ///< Borrows the descriptor of clients_.
    std::optional<tcp::acceptor> acceptor_;
    std::uint64_t acceptor_number_ = 0;
    boost::asio::steady_timer accept_pause_;
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
