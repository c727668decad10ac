// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/store_server/store_server.h"

#include <utility>

#include "rendezvous/net/descriptor.h"

namespace regroup::store {

using boost::asio::ip::tcp;
using boost::system::error_code;

StoreServer::StoreServer(boost::asio::io_context& io) : StoreServer(io, Options()) {}

StoreServer::StoreServer(boost::asio::io_context& io, Options options)
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

StoreServer::~StoreServer() {
    ready_events_.release();
}

void StoreServer::serve(tcp::acceptor acceptor) {
    accept_loop_.start(std::move(acceptor));
}

void StoreServer::adopt(tcp::socket socket, std::string_view first_bytes) {
    net::set_close_on_exec(socket.native_handle());
    error_code error;
    socket.non_blocking(true, error);
    UniqueFd descriptor(socket.release(error));
    if (!error) {
        admit(std::move(descriptor), first_bytes);
    }
}

ClientId StoreServer::attach(FarEnd& far_end) {
    const ClientId client = engine_.attach(far_end);
    watch_ready();
    return client;
}

void StoreServer::close() {
    accept_loop_.close();
    engine_.reset();
}

void StoreServer::accepted(UniqueFd socket) {
    const int fd = socket.get();
    const auto why = objection_
                         ? objection_(endpoint_of(fd, End::ours), endpoint_of(fd, End::theirs))
                         : std::nullopt;
    if (why) {
        engine_.tell_refusal(describe_peer(fd), *why);
    } else {
        admit(std::move(socket), {});
    }
}

void StoreServer::admit(UniqueFd socket, std::string_view first_bytes) {
    engine_.admit({std::move(socket)}, first_bytes);
    watch_ready();
}

void StoreServer::watch_ready() {
    if (!ready_events_.is_open() && engine_.ready_fd() >= 0) {
        error_code error;
        ready_events_.assign(engine_.ready_fd(), error);
        if (!error) {
            await_ready();
        }
    }
}

void StoreServer::await_ready() {
    ready_events_.async_wait(boost::asio::posix::stream_descriptor::wait_read,
                             [this, alive = std::weak_ptr(alive_)](const error_code&) {
                                 if (!alive.expired()) {
                                     engine_.serve_ready();
                                     await_ready();
                                 }
                             });
}

}  // namespace regroup::store
