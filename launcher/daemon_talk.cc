// SPDX-License-Identifier: Apache-2.0
#include "launcher/daemon_talk.h"

#include <utility>

namespace regroup::launcher {

Failure no_daemon(Duration limit, const std::string& trouble) {
    return {Errc::disconnected, "no daemon has answered within " + format_duration(limit) +
                                    (trouble.empty() ? "" : ": " + trouble)};
}

Result<void> DaemonTalk::run(rendezvous::LeaderConnection& client) {
    client_ = &client;
    begin_limit();
    client.start();
    io_.run();
    return std::move(result_);
}

void DaemonTalk::heard() {
    has_begun_ = true;
    begin_limit();
}

void DaemonTalk::begin_limit() {
    const bool may_reconnect = has_begun_ && silence_limit_ > Duration::zero();
    deadline_.expires_after(may_reconnect ? silence_limit_ : answer_limit_);
    deadline_.async_wait([this, may_reconnect](boost::system::error_code error) {
        if (error) {
            return;
        }
        if (may_reconnect) {
            begin_limit();
            client_->drop();
        } else {
            end(no_daemon(answer_limit_, trouble_));
        }
    });
}

void DaemonTalk::go_on_after(Duration pause, std::function<void()> then) {
    pause_.expires_after(pause);
    pause_.async_wait([then = std::move(then)](boost::system::error_code error) {
        if (!error) {
            then();
        }
    });
}

void DaemonTalk::end(Result<void> result) {
    result_ = std::move(result);
    deadline_.cancel();
    pause_.cancel();
    client_->stop(rendezvous::kClientStopLimit, [this] { io_.stop(); });
}

}  // namespace regroup::launcher
