// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/net/poll_set.h"

#include <regroup/error.h>

#include <algorithm>
#include <cerrno>
#include <ctime>

#include "rendezvous/base/result.h"

namespace regroup::net {

void PollSet::want(Pollable& pollable, short events) {
    entries_.push_back(pollfd{.fd = pollable.fd.get(), .events = events, .revents = 0});
    pollables_.push_back(&pollable);
}

void PollSet::want_read(Pollable& pollable) {
    ready_ = ready_ || pollable.readable;
    want(pollable, POLLIN);
}

void PollSet::want_write(Pollable& pollable) {
    ready_ = ready_ || pollable.writable;
    want(pollable, POLLOUT);
}

void PollSet::wait(Instant until) {
    constexpr Duration kLongest = std::chrono::hours(1);  // Keeps the sum below within timespec.
    const Duration left = ready_
                              ? Duration::zero()
                              : std::clamp(until - SteadyClock().now(), Duration::zero(), kLongest);
    const auto seconds = std::chrono::floor<std::chrono::seconds>(left);
    const timespec limit{.tv_sec = seconds.count(), .tv_nsec = (left - seconds).count()};
    const int count = ::ppoll(entries_.data(), entries_.size(), &limit, nullptr);
    const int error_number = errno;
    for (std::size_t i = 0; count > 0 && i < entries_.size(); ++i) {
        // The next attempt to read or write shows an error or a hang-up.
        if (entries_[i].revents != 0) {
            ((entries_[i].events & POLLIN) != 0 ? pollables_[i]->readable
                                                : pollables_[i]->writable) = true;
        }
    }
    entries_.clear();
    pollables_.clear();
    ready_ = false;
    if (count < 0 && error_number != EINTR) {
        throw Error(Errc::system, system_failure("ppoll", error_number).detail);
    }
}

}  // namespace regroup::net
