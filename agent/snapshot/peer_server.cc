// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/peer_server.h"

#include <algorithm>
#include <utility>

#include <boost/asio/ip/tcp.hpp>

#include "agent/snapshot/low_priority.h"
#include "rendezvous/net/listen.h"
#include "rendezvous/snapshot/image.h"

namespace regroup::agent {

namespace {

using snapshot::Answer;
using snapshot::Ask;

bool fails(PeerStream& stream, std::string why) {
    return static_cast<bool>(stream.send(Answer{.error = std::move(why)}));
}

}  // namespace

PeerServer::PeerServer(boost::asio::io_context& io, Shelf& shelf, Handlers handlers)
    : shelf_(shelf),
      handlers_(std::move(handlers)),
      accept_loop_(io, [this](int fd) { accepted(fd); }) {}

PeerServer::~PeerServer() {
    accept_loop_.close();
    sockets_.stop();
}

Result<void> PeerServer::start(const PeerTrust& trust, boost::asio::io_context& io) {
    auto acceptor = trust.same_user ? net::listen_within_host(io, 0) : net::listen_on(io, "", 0);
    if (!acceptor) {
        return acceptor.error();
    }
    trust_ = trust;
    port_ = acceptor->local_endpoint().port();
    accept_loop_.start(std::move(*acceptor));
    return {};
}

void PeerServer::set_trust(const PeerTrust& trust) {
    trust_ = trust;
    refusals_told_ = 0;
}

// Strangers can cause them at any rate.
void PeerServer::tell_refusal(const std::string& why) {
    constexpr int kToldMax = 10;
    const int told = ++refusals_told_;
    if (told <= kToldMax && !sockets_.is_stopped()) {
        handlers_.say("a connection for snapshots was refused: the other end " + why +
                      "; an agent that is still in another round is refused, too, and tries again" +
                      (told < kToldMax ? "" : " (further ones of this round are not told)"));
    }
}

void PeerServer::accepted(int fd) {
    auto visit = std::make_shared<std::unique_ptr<Entrance::Visit>>(
        std::make_unique<Entrance::Visit>(entrance_, fd));
    auto socket = std::make_shared<UniqueFd>(fd);
    // One that cannot be served is closed; the peer tries again.
    static_cast<void>(threads_.start([this, socket, visit, trust = trust_] {
        serve(std::move(*socket), trust, std::move(*visit));
    }));
}

void PeerServer::serve(UniqueFd socket, const PeerTrust& trust,
                       std::unique_ptr<Entrance::Visit> visit) {
    const auto stream = PeerStream::accept(std::move(socket), trust, sockets_);
    visit.reset();
    if (!stream) {
        tell_refusal(stream.error().detail);
        return;
    }
    if (served_.fetch_add(1) < kServedMax) {
        for (Result<Ask> ask = (*stream)->receive_ask(); ask && answer(**stream, *ask);) {
            ask = (*stream)->receive_ask();
        }
    }
    served_.fetch_sub(1);
}

bool PeerServer::answer(PeerStream& stream, const Ask& ask) {
    switch (ask.kind) {
        case Ask::Kind::image:
            return give(stream, ask);
        case Ask::Kind::whole:
            handlers_.on_whole(ask);
            return static_cast<bool>(stream.send(Answer{}));
        case Ask::Kind::kept:
            handlers_.on_kept(ask);
            return static_cast<bool>(stream.send(Answer{}));
        case Ask::Kind::saved:
            return take(stream, ask);
        case Ask::Kind::room:
        case Ask::Kind::holdings:
        case Ask::Kind::adopt:
        case Ask::Kind::copies_to:
            break;
    }
    return fails(stream, "this message is for a worker's own agent");
}

bool PeerServer::give(PeerStream& stream, const Ask& ask) {
    const Result<ImageRef> image = handlers_.find(ask);
    if (!image) {
        return fails(stream, image.error().detail);
    }
    const auto [begin, count] = range_of(ask, image->bytes.size());
    if (count == 0) {
        return fails(stream, "the image ends before byte " + std::to_string(ask.begin));
    }
    const std::span<const std::byte> bytes = image->bytes.subspan(begin, count);
    return stream.send(Answer{.bytes = bytes.size()}) && stream.send(bytes);
}

bool PeerServer::take(PeerStream& stream, const Ask& ask) {
    lower_priority();
    const Result<std::shared_ptr<ImageMemory>> place =
        shelf_.begin_copy(ask.id, ask.version, ask.bytes);
    if (!place) {
        return fails(stream, place.error().detail);
    }
    if (*place == nullptr) {
        return static_cast<bool>(stream.send(Answer{}));
    }
    if (!stream.send(Answer{.bytes = ask.bytes}) || !stream.receive((*place)->bytes())) {
        return false;
    }
    const Result<snapshot::ImageHeader> header = snapshot::verify_image((*place)->bytes());
    if (!header || header->id != ask.id || header->version != ask.version) {
        const std::string why = header ? "is of another version or part" : header.error().detail;
        return fails(stream, "the copy of " + to_string(ask.version) + " of part " +
                                 std::to_string(ask.id.part) + " " + why);
    }
    shelf_.keep_copy(ask.id, ask.version, *place);
    return static_cast<bool>(stream.send(Answer{}));
}

}  // namespace regroup::agent
