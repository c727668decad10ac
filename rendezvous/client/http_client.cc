// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/client/http_client.h"

#include <memory>
#include <optional>
#include <utility>

namespace regroup::rendezvous {

namespace {

using Heard = LeaderConnection::Heard;

constexpr Duration kAttemptLimit = std::chrono::seconds(30);
// No daemon sends a longer body.
constexpr std::size_t kBodyBytesMax = std::size_t{64} << 20U;
constexpr unsigned kUnavailable = 503;

class AnswerDecoder final : public LeaderConnection::Decoder {
   public:
    explicit AnswerDecoder(std::shared_ptr<const HttpClient::Handlers> handlers)
        : handlers_(std::move(handlers)) {}

    void feed(std::string_view bytes) override { reader_.feed(bytes); }
    Result<Heard> next() override {
        boost::system::error_code error;
        const std::optional<HttpAnswer> answer = reader_.next(error);
        if (error) {
            return Failure(Errc::invalid_argument,
                           "it does not answer as a regroup daemon does (HTTP)");
        }
        if (!answer) {
            return Heard{};
        }
        const auto leader = answer->fields.find("regroup-leader");
        if (answer->status == kUnavailable && leader != answer->fields.end()) {
            return Heard{Heard::Kind::elsewhere, leader->second};
        }
        const bool is_more = std::exchange(is_stream_, answer->is_stream);
        if (!is_more) {
            handlers_->on_answer(*answer);
        } else if (handlers_->on_text) {
            handlers_->on_text(answer->body);
        }
        return Heard{Heard::Kind::answer};
    }

   private:
    const std::shared_ptr<const HttpClient::Handlers> handlers_;
    HttpAnswerReader reader_{kBodyBytesMax, /*streams=*/true};
    bool is_stream_ = false;
};

}  // namespace

HttpClient::HttpClient(boost::asio::io_context& io, std::vector<Endpoint> endpoints,
                       const Handlers& handlers, security::Identity identity)
    : LeaderConnection(
          io, std::move(endpoints), static_cast<const LeaderConnection::Handlers&>(handlers),
          [shared = std::make_shared<const Handlers>(handlers)] {
              return std::make_unique<AnswerDecoder>(shared);
          },
          kAttemptLimit, std::move(identity)) {}

void HttpClient::get(const std::string& target) {
    // A daemon always goes by its address.
    send_bytes("GET " + target + " HTTP/1.1\r\nHost: " + peer() + "\r\n\r\n");
}

}  // namespace regroup::rendezvous
