// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store/store_server.h"

#include <cerrno>
#include <chrono>
#include <map>
#include <optional>
#include <sstream>
#include <sys/socket.h>
#include <unistd.h>
#include <utility>

#include <boost/asio/buffer.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/net/descriptor.h"
#include "rendezvous/store/store_dispatch.h"

namespace regroup::store {
namespace {

using boost::asio::ip::tcp;
using boost::system::error_code;

constexpr std::size_t kReadBytes = 64 * 1024;
/// Clients accepted before those that are there have their turn.
constexpr int kAcceptsPerTurn = 64;
/// How long accepting pauses when descriptors or memory have run out.
constexpr std::chrono::milliseconds kAcceptPause{100};

struct Client {
    Client(tcp::socket socket_in, const Limits& limits)
        : socket(std::move(socket_in)), parser(limits) {}

    [[nodiscard]] std::string_view unsent() const {
        return std::string_view(outbox).substr(sent_bytes);
    }

    tcp::socket socket;
    RequestParser parser;
    std::string outbox;  ///< Replies; the first `sent_bytes` have been sent.
    std::size_t sent_bytes = 0;
    bool awaits_writable = false;
};

std::string describe_peer(const tcp::socket& socket) {
    error_code error;
    tcp::endpoint peer = socket.remote_endpoint(error);
    if (error) {
        return "a client that has gone";
    }
    if (peer.address().is_v6() && peer.address().to_v6().is_v4_mapped()) {
        // How a dual-stack socket shows an IPv4 client; people know it as 10.0.0.1:1234.
        peer.address(
            boost::asio::ip::make_address_v4(boost::asio::ip::v4_mapped, peer.address().to_v6()));
    }
    std::ostringstream text;
    text << peer;
    return text.str();
}

}  // namespace

/// Handlers hold an id instead of a reference: a client may be gone when its handler runs, and ids
/// are never used twice. They hold `alive_` weakly, which tells them whether there still is a
/// server.
class StoreServer::Impl {
   public:
    Impl(boost::asio::io_context& io, Options options)
        : io_(io), options_(std::move(options)), core_(options_.limits), accept_pause_(io) {}

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
        if (!error) {
            socket.set_option(tcp::no_delay(true), error);
        }
        if (error) {
            return;  // Reset by the peer before we came to it.
        }
        const ClientId id{next_id_++};
        clients_.try_emplace(id, std::move(socket), options_.limits);
        receive(id, first_bytes);
        await_readable(id);
    }

    void reset() {
        clients_.clear();
        core_ = StoreCore(options_.limits);
    }

    void close() {
        acceptor_.reset();
        accept_pause_.cancel();
        reset();
    }

   private:
    [[nodiscard]] Client* find(ClientId id) {
        const auto entry = clients_.find(id);
        return entry == clients_.end() ? nullptr : &entry->second;
    }

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

    /// By hand, because Asio's accept leaves the descriptor to be inherited by programs we start.
    void accept_some() {
        error_code error;
        const tcp protocol = acceptor_->local_endpoint(error).protocol();
        for (int i = 0; i < kAcceptsPerTurn; ++i) {
            const int fd = ::accept4(acceptor_->native_handle(), nullptr, nullptr,
                                     SOCK_NONBLOCK | SOCK_CLOEXEC);
            if (fd >= 0) {
                tcp::socket socket(io_);
                socket.assign(protocol, fd, error);
                if (error) {
                    ::close(fd);
                } else {
                    adopt(std::move(socket), {});
                }
            } else if (errno == EAGAIN || errno == EWOULDBLOCK) {
                break;
            } else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
                // The connection stays in the backlog and would wake us at once, again and again.
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

    // ---- Reading. One buffer serves all clients, so that an idle one costs next to nothing.

    void await_readable(ClientId id) {
        Client* client = find(id);
        if (client == nullptr) {
            return;
        }
        client->socket.async_wait(tcp::socket::wait_read,
                                  [this, alive = std::weak_ptr(alive_), id](const error_code&) {
                                      if (!alive.expired()) {
                                          read_some(id);
                                      }
                                  });
    }

    void read_some(ClientId id) {
        Client* client = find(id);
        if (client == nullptr) {
            return;
        }
        error_code error;
        const std::size_t bytes =
            client->socket.read_some(boost::asio::buffer(read_buffer_.get(), kReadBytes), error);
        if (error && error != boost::asio::error::would_block) {
            drop(id);
            return;
        }
        receive(id, std::string_view(read_buffer_.get(), bytes));
        await_readable(id);
    }

    void receive(ClientId id, std::string_view bytes) {
        Released released;
        while (!bytes.empty()) {
            // Looked up for each request: to send anything may show that the client has gone.
            Client* client = find(id);
            if (client == nullptr) {
                return;
            }
            auto request = client->parser.next(bytes);
            Result<void> done;
            if (!request) {
                done = request.error();
            } else if (*request) {
                done = execute(core_, id, **request, client->outbox, released);
            }
            if (!done) {
                refuse(id, done.error().detail);
                return;
            }
            limit_outbox(id);
            release(released);
        }
        flush(id);
    }

    void release(Released& released) {
        for (const ClientId id : released) {
            if (Client* client = find(id)) {
                client->outbox.push_back(kStopWaiting);
                flush(id);
            }
        }
        released.clear();
    }

    void limit_outbox(ClientId id) {
        const std::size_t limit = options_.limits.reply_bytes_max;
        if (find(id)->unsent().size() <= limit) {
            return;
        }
        flush(id);
        const Client* client = find(id);
        if (client != nullptr && client->unsent().size() > limit) {
            refuse(id, "it does not read its replies; " + std::to_string(client->unsent().size()) +
                           " bytes are waiting, the limit is " + std::to_string(limit));
        }
    }

    // ---- Writing.

    /// Sends what the socket takes, and sees to the rest later.
    void flush(ClientId id) {
        Client* client = find(id);
        if (client == nullptr || client->awaits_writable) {
            return;
        }
        while (!client->unsent().empty()) {
            error_code error;
            const std::size_t bytes =
                client->socket.write_some(boost::asio::buffer(client->unsent()), error);
            if (error == boost::asio::error::would_block) {
                await_writable(id, *client);
                return;
            }
            if (error) {
                drop(id);
                return;
            }
            client->sent_bytes += bytes;
        }
        client->outbox.clear();
        client->sent_bytes = 0;
        if (client->outbox.capacity() > kReadBytes) {
            client->outbox.shrink_to_fit();
        }
    }

    void await_writable(ClientId id, Client& client) {
        // A client that is always a little behind must not make its outbox grow for ever; moving
        // the rest only when it is the smaller part keeps the cost in proportion to what was sent.
        if (client.sent_bytes > client.unsent().size()) {
            client.outbox.erase(0, client.sent_bytes);
            client.sent_bytes = 0;
        }
        client.awaits_writable = true;
        client.socket.async_wait(tcp::socket::wait_write,
                                 [this, alive = std::weak_ptr(alive_), id](const error_code&) {
                                     if (alive.expired()) {
                                         return;
                                     }
                                     if (Client* writable = find(id)) {
                                         writable->awaits_writable = false;
                                         flush(id);
                                     }
                                 });
    }

    // ---- Parting.

    void refuse(ClientId id, const std::string& why) {
        if (options_.on_refusal) {
            options_.on_refusal("the store disconnected " + describe_peer(find(id)->socket) + ": " +
                                why);
        }
        drop(id);
    }

    void drop(ClientId id) {
        core_.cancel_wait(id);
        clients_.erase(id);
    }

    boost::asio::io_context& io_;
    const Options options_;
    StoreCore core_;
    std::map<ClientId, Client> clients_;
    std::uint64_t next_id_ = 0;
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

void StoreServer::adopt(tcp::socket socket, std::string first_bytes) {
    impl_->adopt(std::move(socket), first_bytes);
}

void StoreServer::reset() {
    impl_->reset();
}

void StoreServer::close() {
    impl_->close();
}

}  // namespace regroup::store
