// SPDX-License-Identifier: Apache-2.0
#include "agent/process/readable_watch.h"

#include <boost/asio/io_context.hpp>
#include <boost/asio/posix/stream_descriptor.hpp>

namespace regroup::agent {

using boost::asio::posix::stream_descriptor;

struct ReadableWatch::State {
    State(boost::asio::io_context& io, std::function<void()> on_readable_in)
        : descriptor(io), on_readable(std::move(on_readable_in)) {}

    stream_descriptor descriptor;
    std::function<void()> on_readable;
    bool armed = false;
};

ReadableWatch::ReadableWatch(std::shared_ptr<State> state) : state_(std::move(state)) {}
ReadableWatch::ReadableWatch(ReadableWatch&&) noexcept = default;
ReadableWatch& ReadableWatch::operator=(ReadableWatch&&) noexcept = default;
ReadableWatch::~ReadableWatch() = default;

Result<ReadableWatch> ReadableWatch::open(boost::asio::io_context& io, UniqueFd fd,
                                          std::function<void()> on_readable) {
    auto state = std::make_shared<State>(io, std::move(on_readable));
    boost::system::error_code error;
    state->descriptor.assign(fd.get(), error);
    if (error) {
        return system_failure("watch a descriptor", error.value());
    }
    (void)fd.release();
    return ReadableWatch(std::move(state));
}

void ReadableWatch::arm() {
    if (!std::exchange(state_->armed, true)) {
        wait(state_);
    }
}

void ReadableWatch::wait(const std::shared_ptr<State>& state) {
    state->descriptor.async_wait(
        stream_descriptor::wait_read,
        [weak = std::weak_ptr<State>(state)](const boost::system::error_code& error) {
            // Keeps the state alive during the call, which may destroy the watch.
            const std::shared_ptr<State> held = weak.lock();
            if (held) {
                ENSURE(!error);
                held->armed = false;
                held->on_readable();
            }
        });
}

int ReadableWatch::fd() const noexcept {
    return state_->descriptor.native_handle();
}

}  // namespace regroup::agent
