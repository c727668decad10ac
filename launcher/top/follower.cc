// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/follower.h"

#include <optional>
#include <utility>

#include "rendezvous/base/clock.h"
#include "rendezvous/text/describe.h"

namespace regroup::launcher::top {

namespace {

using rendezvous::Operate;
using rendezvous::Operated;

// A daemon that has accepted the connection and does not answer for so long is asked anew.
constexpr Duration kAnswerLimit = std::chrono::seconds(10);

}  // namespace

Follower::Follower(boost::asio::io_context& io, const std::vector<rendezvous::Endpoint>& endpoints,
                   std::string job, Duration interval, security::Identity identity,
                   Handlers handlers)
    : job_(std::move(job)),
      interval_(interval),
      handlers_(std::move(handlers)),
      timer_(io),
      client_(io, endpoints, client_handlers(), std::chrono::seconds(30), std::move(identity)) {}

rendezvous::ControlClient::Handlers Follower::client_handlers() {
    rendezvous::ControlClient::Handlers handlers;
    handlers.on_up = [this] {
        up_ = true;
        parts_.forget();
        ask_when_due();
    };
    handlers.on_down = [this] {
        up_ = false;
        timer_.cancel();
    };
    handlers.on_message = [this](const rendezvous::FromDaemon& message) { receive(message); };
    handlers.on_trouble = [this](const std::string& reason, bool) { handlers_.trouble(reason); };
    return handlers;
}

void Follower::ask_when_due() {
    timer_.expires_at(due_);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error && up_) {
            ask();
        }
    });
}

void Follower::ask() {
    due_ = after(now(), interval_);
    Operate wish;
    wish.job = job_;
    wish.follow = true;
    wish.parts = true;
    client_.send(wish);
    timer_.expires_after(kAnswerLimit);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error && up_) {
            handlers_.trouble(client_.peer() + " has accepted the connection and says nothing");
            client_.drop();
        }
    });
}

void Follower::receive(const rendezvous::FromDaemon& message) {
    const auto* const part = std::get_if<Operated>(&message);
    const std::optional<Operated> answer = part == nullptr ? std::nullopt : parts_.take(*part);
    if (answer && answer->done) {
        ask_when_due();
        handlers_.status(answer->text);
    } else if (answer) {
        timer_.cancel();  // The daemon closes the connection, and is asked on the next one.
        handlers_.refusal(answer->text);
    } else if (const auto* refused = std::get_if<rendezvous::Refused>(&message)) {
        timer_.cancel();
        handlers_.refusal(rendezvous::describe(refused->reason));
    }
}

void Follower::stop(std::function<void()> done) {
    up_ = false;
    timer_.cancel();
    client_.stop(rendezvous::kClientStopLimit, std::move(done));
}

}  // namespace regroup::launcher::top
