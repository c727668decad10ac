// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/follower.h"

#include <optional>
#include <utility>

#include "launcher/daemon_get.h"
#include "rendezvous/base/clock.h"

namespace regroup::launcher::top {

namespace {

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
      client_(io, endpoints, client_handlers(), std::move(identity)) {}

rendezvous::HttpClient::Handlers Follower::client_handlers() {
    rendezvous::HttpClient::Handlers handlers;
    handlers.on_up = [this] {
        up_ = true;
        ask_when_due();
    };
    handlers.on_down = [this] {
        up_ = false;
        timer_.cancel();
    };
    handlers.on_answer = [this](const rendezvous::HttpAnswer& answer) { receive(answer); };
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
    client_.get(target_of("jobs", job_));
    timer_.expires_after(kAnswerLimit);
    timer_.async_wait([this](const boost::system::error_code& error) {
        if (!error && up_) {
            handlers_.trouble(client_.peer() + " has accepted the connection and says nothing");
            client_.drop();
        }
    });
}

void Follower::receive(const rendezvous::HttpAnswer& answer) {
    ask_when_due();
    if (const std::optional<std::string> why = refusal_in(answer)) {
        handlers_.refusal(*why);
    } else {
        handlers_.status(answer.body);
    }
}

void Follower::stop(std::function<void()> done) {
    up_ = false;
    timer_.cancel();
    client_.stop(rendezvous::kClientStopLimit, std::move(done));
}

}  // namespace regroup::launcher::top
