// SPDX-License-Identifier: Apache-2.0
#include "agent/workers/start_watch.h"

#include <chrono>
#include <utility>

namespace regroup::agent {

namespace {

constexpr Duration kPause = std::chrono::milliseconds(50);
/// A shorter start is not worth a line.
constexpr Duration kSlow = std::chrono::milliseconds(500);
/// Processes that are silent for longer do more than to start.
constexpr Duration kLimit = std::chrono::minutes(5);

}  // namespace

StartWatch::StartWatch(boost::asio::io_context& io, const Clock& clock, Handlers handlers)
    : clock_(clock), handlers_(std::move(handlers)), timer_(io) {}

void StartWatch::started(std::uint32_t local_rank, pid_t pid) {
    if (!has_ended_ && !known_.insert(local_rank).second) {
        started_at_ = clock_.now();
        pid_ = pid;
        looks_ = true;
        look_soon();
    }
}

void StartWatch::end() noexcept {
    has_ended_ = true;
    looks_ = false;
}

void StartWatch::judge(bool shows_sign) {
    if (!looks_) {
        return;
    }
    const Duration taken = clock_.now() - started_at_;
    looks_ = !shows_sign && taken < kLimit;
    if (shows_sign && taken >= kSlow) {
        end();
        handlers_.on_slow(taken, pid_);
    }
}

void StartWatch::look_soon() {
    if (looks_) {
        timer_.expires_after(kPause);
        timer_.async_wait([this](const boost::system::error_code& error) {
            if (!error) {
                look();
                look_soon();
            }
        });
    }
}

}  // namespace regroup::agent
