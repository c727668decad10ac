// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_relay/relay_server.h"

#include <deque>
#include <list>
#include <map>
#include <unistd.h>
#include <utility>

#include <boost/asio/awaitable.hpp>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/detached.hpp>
#include <boost/asio/steady_timer.hpp>

#include "rendezvous/net/accept_loop.h"
#include "rendezvous/security/stream.h"
#include "rendezvous/store/peer_socket.h"
#include "rendezvous/store_relay/mux_connection.h"
#include "rendezvous/store_server/socket.h"

namespace regroup::store {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

/// The workers of one node.
class NodeRelay {
   public:
    NodeRelay(StoreServer& store, std::string peer, std::size_t channels_max)
        : store_(store), peer_(std::move(peer)), channels_max_(channels_max) {}
    ~NodeRelay() {
        for (auto& [number, worker] : workers_) {
            store_.detach(worker->id);
        }
        if (connection_) {
            connection_->close();
        }
    }
    NodeRelay(const NodeRelay&) = delete;
    NodeRelay& operator=(const NodeRelay&) = delete;

    [[nodiscard]] const std::string& peer() const noexcept { return peer_; }

    /// `on_end` may destroy this object.
    void start(std::unique_ptr<security::Stream> stream,
               std::function<void(const MuxEnd& end)> on_end) {
        connection_ = MuxConnection::make(std::move(stream),
                                          {.on_piece = [this](const MuxPiece& p) { take(p); },
                                           .on_room = [this] { resume_waiting(); },
                                           .on_end = std::move(on_end)});
        connection_->start();
    }

   private:
    class Worker : public FarEnd {
       public:
        Worker(NodeRelay& node, Channel channel) : node_(node), channel_(channel) {}

        std::size_t take(std::string_view bytes) override {
            const std::size_t count = node_.connection_->send_some(channel_, bytes);
            if (count < bytes.size()) {
                node_.waiting_.push_back(channel_);
            }
            return count;
        }
        void closed() override {
            const Channel channel = channel_;
            node_.connection_->send(channel, MuxKind::close);
            node_.workers_.erase(channel);  // Destroys this object.
        }
        [[nodiscard]] std::string name() const override { return "a worker behind " + node_.peer_; }

        ClientId id{};

       private:
        NodeRelay& node_;
        Channel channel_;
    };

    void take(const MuxPiece& piece) {
        const auto found = workers_.find(piece.channel);
        switch (piece.kind) {
            case MuxKind::open:
                open(piece.channel);
                break;
            case MuxKind::data:
                if (found != workers_.end()) {
                    store_.receive(found->second->id, piece.bytes);
                }
                break;
            case MuxKind::close:
                if (found != workers_.end()) {
                    store_.detach(found->second->id);
                    workers_.erase(found);
                }
                break;
        }
    }

    void open(Channel channel) {
        if (channel <= last_channel_) {
            connection_->fail("opened a channel twice");
            return;
        }
        last_channel_ = channel;
        if (workers_.size() >= channels_max_) {
            connection_->send(channel, MuxKind::close);
            return;
        }
        const auto worker = workers_.emplace(channel, std::make_unique<Worker>(*this, channel));
        worker.first->second->id = store_.attach(*worker.first->second);
    }

    /// In turn, so that one with long replies does not keep the others waiting.
    void resume_waiting() {
        for (std::size_t count = waiting_.size(); count > 0 && connection_->room() > 0; --count) {
            const auto found = workers_.find(waiting_.front());
            waiting_.pop_front();
            if (found != workers_.end()) {
                store_.resume(found->second->id);
            }
        }
    }

    StoreServer& store_;
    const std::string peer_;
    const std::size_t channels_max_;
    std::shared_ptr<MuxConnection> connection_;
    std::map<Channel, std::unique_ptr<Worker>> workers_;
    std::deque<Channel> waiting_;  ///< Workers whose replies did not fit, each once.
    Channel last_channel_ = 0;
};

struct Handshake {
    std::unique_ptr<security::Stream> stream;
    std::string peer;
    Instant began;
};

}  // namespace

struct RelayServer::Impl {
    Impl(asio::io_context& io_in, StoreServer& store_in, security::Tls tls_in, Options options_in)
        : io(io_in),
          store(store_in),
          tls(std::move(tls_in)),
          options(std::move(options_in)),
          accept_loop(io_in, [this](int fd) { accepted(fd); }),
          sweep_timer(io_in) {}

    void accepted(int fd) {
        prepare_socket(fd);
        tcp::socket socket(io);
        error_code error;
        socket.assign(family_of(fd), fd, error);
        if (error) {
            ::close(fd);
            return;
        }
        if (endpoint_of(fd, End::theirs).port() == 0) {
            return;
        }
        handshakes.push_back({std::make_unique<security::Stream>(std::move(socket)),
                              describe_peer(fd), SteadyClock().now()});
        asio::co_spawn(io, shake_hands(self.lock(), std::prev(handshakes.end())), asio::detached);
        if (is_full()) {
            accept_loop.pause();
        }
        sweep_later();
    }

    static tcp family_of(int fd) {
        int family = 0;
        socklen_t bytes = sizeof family;
        ::getsockopt(fd, SOL_SOCKET, SO_DOMAIN, &family, &bytes);
        return family == AF_INET6 ? tcp::v6() : tcp::v4();
    }

    [[nodiscard]] bool is_full() const { return handshakes.size() >= options.handshakes_max; }

    static asio::awaitable<void> shake_hands(std::shared_ptr<Impl> self,
                                             std::list<Handshake>::iterator handshake) {
        const Result<void> done = co_await handshake->stream->shake_hands(self->tls.connection());
        if (self->closed) {
            co_return;
        }
        Handshake ended = std::move(*handshake);
        const bool was_full = self->is_full();
        self->handshakes.erase(handshake);
        if (was_full) {
            self->accept_loop.resume();
        }
        self->sweep_later();
        if (done) {
            self->begin(std::move(ended));
        } else {
            self->tell("the store refused " + ended.peer +
                       ", which did not prove that it is a node of this round: it " +
                       done.error().detail);
        }
    }

    void begin(Handshake handshake) {
        const std::uint64_t number = ++last_node;
        NodeRelay& node =
            nodes.try_emplace(number, store, handshake.peer, options.channels_max).first->second;
        node.start(std::move(handshake.stream), [this, number](const MuxEnd& end) {
            const auto found = nodes.find(number);
            if (!end.in_order) {
                tell("the store lost the workers behind " + found->second.peer() + ", which " +
                     end.why);
            }
            nodes.erase(found);
        });
    }

    /// The list is in the order in which they began.
    void sweep_later() {
        if (handshakes.empty()) {
            sweep_timer.cancel();
            return;
        }
        sweep_timer.expires_at(handshakes.front().began + limit());
        sweep_timer.async_wait([weak = self](const error_code& error) {
            const auto impl = weak.lock();
            if (!error && impl && !impl->closed) {
                impl->sweep();
            }
        });
    }

    [[nodiscard]] Duration limit() const {
        return is_full() ? options.handshake_limit_when_full : options.handshake_limit;
    }

    /// Ends the handshakes that are late. Their coroutines remove them.
    void sweep() {
        const Instant late = SteadyClock().now() - limit();
        for (Handshake& handshake : handshakes) {
            if (handshake.began > late) {
                break;
            }
            handshake.stream->close();
        }
    }

    void tell(const std::string& sentence) const {
        if (options.on_refusal) {
            options.on_refusal(sentence);
        }
    }

    void close() {
        closed = true;
        accept_loop.close();
        sweep_timer.cancel();
        for (Handshake& handshake : handshakes) {
            handshake.stream->close();
        }
        nodes.clear();
    }

    std::weak_ptr<Impl> self;
    asio::io_context& io;
    StoreServer& store;
    const security::Tls tls;
    const Options options;
    net::AcceptLoop accept_loop;
    asio::steady_timer sweep_timer;
    std::list<Handshake> handshakes;
    std::map<std::uint64_t, NodeRelay> nodes;
    std::uint64_t last_node = 0;
    bool closed = false;
};

RelayServer::RelayServer(asio::io_context& io, StoreServer& store, security::Tls tls,
                         tcp::acceptor acceptor, Options options)
    : impl_(std::make_shared<Impl>(io, store, std::move(tls), std::move(options))) {
    impl_->self = impl_;
    impl_->accept_loop.start(std::move(acceptor));
}

RelayServer::~RelayServer() {
    impl_->close();
}

std::size_t RelayServer::connections_count() const noexcept {
    return impl_->nodes.size();
}

std::size_t RelayServer::handshakes_count() const noexcept {
    return impl_->handshakes.size();
}

}  // namespace regroup::store
