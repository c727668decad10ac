// SPDX-License-Identifier: Apache-2.0
#include "agent/watch/hang_watch.h"

#include <algorithm>
#include <utility>

namespace regroup::agent {

namespace {

// Ignores the text, which contains the duration. Many ranks wait in a collective for about as long.
bool same(const std::optional<rendezvous::Hang>& a, const std::optional<rendezvous::Hang>& b) {
    if (!a || !b) {
        return a.has_value() == b.has_value();
    }
    return a->in_collective == b->in_collective && a->shared == b->shared &&
           a->only_told == b->only_told && (a->in_collective || a->rank == b->rank);
}

}  // namespace

HangWatch::HangWatch(boost::asio::io_context& io, const Clock& clock, HangLimits limits,
                     Handlers handlers)
    : clock_(clock),
      limits_(limits),
      interval_(look_interval(limits)),
      handlers_(std::move(handlers)),
      watch_(limits, interval_),
      collectives_(limits, interval_),
      timer_(io) {}

void HangWatch::begin(std::uint32_t first_rank, std::size_t workers) {
    end();
    first_rank_ = first_rank;
    workers_ = workers;
    running_ = true;
    stops_by_.reset();
    watch_.reset_silence();
    arm();
}

void HangWatch::stop() {
    if (running_ && !stops_by_) {
        hang_.reset();
        stops_by_ = after(clock_.now(), limits_.first);
        first_look_ = true;
        look_for_work();
    }
}

void HangWatch::look_for_work() {
    const Instant now = clock_.now();
    const std::vector<WorkerLook> looks = handlers_.looks();
    static_cast<void>(watch_.look(now, looks, workers_));
    Duration left{};
    for (const WorkerLook& look : looks) {
        if (!handlers_.is_stopped(look.pid)) {
            left = std::max(left, watch_.work_left(look));
        }
    }
    arm();
    if (std::exchange(first_look_, false)) {
        stops_by_ = std::max(*stops_by_, after(now, left));
    }
    if (left = std::min(left, *stops_by_ - now); left > Duration::zero()) {
        handlers_.on_work(left);
    }
}

void HangWatch::end() {
    ++round_;
    running_ = false;
    hang_.reset();
    timer_.cancel();
}

void HangWatch::arm() {
    timer_.expires_after(interval_);
    timer_.async_wait([this, round = round_](boost::system::error_code error) {
        if (!error && round == round_) {
            stops_by_ ? look_for_work() : look();
        }
    });
}

void HangWatch::look() {
    const Instant now = clock_.now();
    const std::vector<WorkerLook> looks = handlers_.looks();
    const rendezvous::RankSet finished = handlers_.finished();
    std::optional<rendezvous::Hang> hang = watch_.look(now, looks, workers_, finished);
    // Silence counts only if no worker reports its phase. A program with the SDK but without an
    // ElasticLoop reports none.
    const bool silent = std::all_of(looks.begin(), looks.end(), [](const WorkerLook& look) {
        return look.phase == worker_link::Phase::starting;
    });
    if (const auto bytes = handlers_.output(); silent && bytes) {
        hang = watch_.look_at_output(now, *bytes, first_rank_, finished);
    } else {
        watch_.reset_silence();
    }
    if (silent && !hang) {
        hang = collectives_.look(now, handlers_.groups(now));
    }
    const bool news = !same(hang, hang_);
    hang_ = std::move(hang);
    arm();
    if (news) {
        handlers_.on_change(hang_);
    }
}

}  // namespace regroup::agent
