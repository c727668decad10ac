// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/control_client.h"

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::rendezvous {

namespace {

using Heard = LeaderConnection::Heard;
using OnMessage = std::function<void(FromDaemon message)>;

class MessageDecoder final : public LeaderConnection::Decoder {
   public:
    explicit MessageDecoder(std::shared_ptr<const OnMessage> on_message)
        : on_message_(std::move(on_message)) {}

    void feed(std::string_view bytes) override { reader_.feed(bytes); }
    Result<Heard> next() override {
        const Result<std::optional<std::string>> payload = reader_.next();
        if (!payload) {
            return payload.error();
        }
        if (!*payload) {
            return Heard{};
        }
        Result<FromDaemon> message = protocol::decode_from_daemon(**payload);
        if (!message && protocol::is_of_unknown_type(**payload)) {
            return Heard{Heard::Kind::answer, ""};  // A newer daemon's word to newer agents.
        }
        if (!message) {
            return message.error();
        }
        if (const auto* elsewhere = std::get_if<Elsewhere>(&*message)) {
            return Heard{Heard::Kind::elsewhere, elsewhere->endpoint};
        }
        const bool is_refusal = std::holds_alternative<Refused>(*message);
        (*on_message_)(std::move(*message));
        return Heard{is_refusal ? Heard::Kind::refusal : Heard::Kind::answer};
    }

   private:
    const std::shared_ptr<const OnMessage> on_message_;
    protocol::FrameReader reader_;
};

}  // namespace

ControlClient::ControlClient(boost::asio::io_context& io, Endpoint endpoint, Handlers handlers)
    : ControlClient(io, std::vector<Endpoint>{std::move(endpoint)}, std::move(handlers)) {}

ControlClient::ControlClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints,
                             Handlers handlers, Duration heartbeat_timeout,
                             security::Identity identity)
    : LeaderConnection(
          io, std::move(endpoints), static_cast<const LeaderConnection::Handlers&>(handlers),
          [on_message = std::make_shared<const OnMessage>(std::move(handlers.on_message))] {
              return std::make_unique<MessageDecoder>(on_message);
          },
          heartbeat_timeout, std::move(identity)) {}

void ControlClient::send(const FromAgent& message) {
    send_bytes(protocol::make_frame(protocol::encode(message)));
}

}  // namespace regroup::rendezvous
