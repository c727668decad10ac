// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/control_client.h"

#include <optional>
#include <utility>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::rendezvous {

using Heard = LeaderConnection::Heard;

struct ControlClient::Impl {
    Impl(boost::asio::io_context& io, std::vector<Endpoint> endpoints, Handlers handlers_in,
         LeaderConnection::Handlers link_handlers, Duration heartbeat_timeout,
         security::Identity identity)
        : handlers(std::move(handlers_in)),
          link(io, std::move(endpoints), std::move(link_handlers), heartbeat_timeout,
               std::move(identity)) {}

    /// A handler may stop or drop the connection; the remaining messages are then ignored.
    Result<Heard> take(std::string_view bytes);
    /// Nothing: there is no whole message.
    Result<Heard> take_message();

    Handlers handlers;
    protocol::FrameReader reader;
    LeaderConnection link;
};

Result<Heard> ControlClient::Impl::take(std::string_view bytes) {
    reader.feed(bytes);
    Heard last = Heard::part;
    while (link.is_up()) {
        const Result<Heard> heard = take_message();
        if (!heard || *heard == Heard::elsewhere || *heard == Heard::refusal) {
            return heard;
        }
        if (*heard == Heard::part) {
            break;
        }
        last = *heard;
    }
    return last;
}

Result<Heard> ControlClient::Impl::take_message() {
    const Result<std::optional<std::string>> payload = reader.next();
    if (!payload) {
        return payload.error();
    }
    if (!*payload) {
        return Heard::part;
    }
    Result<FromDaemon> message = protocol::decode_from_daemon(**payload);
    if (!message) {
        return message.error();
    }
    if (const auto* elsewhere = std::get_if<Elsewhere>(&*message)) {
        link.leave_for(elsewhere->endpoint);
        return Heard::elsewhere;
    }
    const bool is_refusal = std::holds_alternative<Refused>(*message);
    handlers.on_message(std::move(*message));
    return is_refusal ? Heard::refusal : Heard::answer;
}

ControlClient::ControlClient(boost::asio::io_context& io, Endpoint endpoint, Handlers handlers)
    : ControlClient(io, std::vector<Endpoint>{std::move(endpoint)}, std::move(handlers)) {}

ControlClient::ControlClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints,
                             Handlers handlers, Duration heartbeat_timeout,
                             security::Identity identity) {
    // A handler may end this client.
    const auto held = std::make_shared<std::weak_ptr<Impl>>();
    LeaderConnection::Handlers of_link;
    of_link.on_up = [held] {
        if (const auto impl = held->lock()) {
            impl->reader = {};
            impl->handlers.on_up();
        }
    };
    of_link.on_down = [held] {
        if (const auto impl = held->lock()) {
            impl->handlers.on_down();
        }
    };
    of_link.on_bytes = [held](std::string_view bytes) -> Result<Heard> {
        const auto impl = held->lock();
        return impl ? impl->take(bytes) : Heard::part;
    };
    of_link.on_trouble = [held](const std::string& reason, bool answered) {
        if (const auto impl = held->lock()) {
            impl->handlers.on_trouble(reason, answered);
        }
    };
    impl_ = std::make_shared<Impl>(io, std::move(endpoints), std::move(handlers),
                                   std::move(of_link), heartbeat_timeout, std::move(identity));
    *held = impl_;
}

ControlClient::~ControlClient() {
    impl_->link.stop(Duration::zero(), nullptr);
}

void ControlClient::start() {
    impl_->link.start();
}

void ControlClient::send(const FromAgent& message) {
    impl_->link.send(protocol::make_frame(protocol::encode(message)));
}

void ControlClient::drop() {
    impl_->link.drop();
}

void ControlClient::stop(Duration limit, std::function<void()> done) {
    impl_->link.stop(limit, std::move(done));
}

const std::string& ControlClient::peer() const {
    return impl_->link.peer();
}

const std::string& ControlClient::daemon_host() const {
    return impl_->link.daemon_host();
}

const std::string& ControlClient::local_address() const {
    return impl_->link.local_address();
}

}  // namespace regroup::rendezvous
