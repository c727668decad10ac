// SPDX-License-Identifier: Apache-2.0
#include "tests/support/stand_in_nccl/host_runtime.h"

#include <regroup/error.h>
#include <regroup/low_precision.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <string>
#include <utility>

namespace regroup::testing {
namespace {

thread_local int current = 0;

/// The progress of a stream, shared with calls that are still in streams when the event is
/// destroyed.
struct HostEvent {
    struct Progress {
        std::mutex mutex;
        std::condition_variable passed_more;
        std::uint64_t passed = 0;
    };

    std::shared_ptr<Progress> progress = std::make_shared<Progress>();
    std::uint64_t recorded = 0;
};

HostEvent& event_of(void* event) {
    return *static_cast<HostEvent*>(event);
}

template <class T>
void scale_values(void* to, const void* from, std::size_t count, float factor) {
    const auto* const values = static_cast<const T*>(from);
    const auto rounded = static_cast<float>(T(factor));
    std::transform(values, values + count, static_cast<T*>(to),
                   [rounded](T value) { return T(static_cast<float>(value) * rounded); });
}

}  // namespace

HostStream::HostStream() : StandInStream{} {
    enqueue = [](StandInStream* self, void (*action)(void*), void* argument) {
        static_cast<HostStream*>(self)->put([action, argument] { action(argument); });
    };
    is_captured = [](const StandInStream* self) {
        return static_cast<const HostStream*>(self)->is_capturing();
    };
    thread_ = std::thread([this] { run(); });
}

HostStream::~HostStream() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
}

void HostStream::put(std::function<void()> action) {
    {
        const std::lock_guard lock(mutex_);
        if (capturing_) {
            captured_.push_back(std::move(action));
            return;
        }
        actions_.push_back(std::move(action));
    }
    changed_.notify_all();
}

void HostStream::begin_capture() {
    const std::lock_guard lock(mutex_);
    capturing_ = true;
    captured_.clear();
}

void HostStream::end_capture() {
    const std::lock_guard lock(mutex_);
    capturing_ = false;
}

bool HostStream::is_capturing() const {
    const std::lock_guard lock(mutex_);
    return capturing_;
}

void HostStream::replay() {
    {
        const std::lock_guard lock(mutex_);
        actions_.insert(actions_.end(), captured_.begin(), captured_.end());
    }
    changed_.notify_all();
}

void HostStream::synchronize() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return actions_.empty() && !busy_; });
}

void HostStream::run() {
    std::unique_lock lock(mutex_);
    while (true) {
        changed_.wait(lock, [this] { return stopping_ || !actions_.empty(); });
        if (actions_.empty()) {
            return;
        }
        const std::function<void()> action = std::move(actions_.front());
        actions_.pop_front();
        busy_ = true;
        lock.unlock();
        action();
        lock.lock();
        busy_ = false;
        changed_.notify_all();
    }
}

HostStream& HostRuntime::stream_of(void* stream) {
    return stream == nullptr ? default_stream_
                             : *static_cast<HostStream*>(static_cast<StandInStream*>(stream));
}

int HostRuntime::current_device() {
    return current;
}

void HostRuntime::set_device(int device) {
    if (device < 0 || device >= devices_) {
        throw Error(Errc::system, "no device " + std::to_string(device));
    }
    current = device;
    const std::lock_guard lock(mutex_);
    contexts_.insert(device);
}

bool HostRuntime::has_context(int device) {
    const std::lock_guard lock(mutex_);
    return contexts_.contains(device);
}

std::string HostRuntime::identity(int device) {
    return "stand-in-" + std::to_string(device);
}

void HostRuntime::stay_out_of_captures() {
    if (refuses_threads_) {
        throw Error(Errc::system, "the test refuses threads of the back end");
    }
}

void* HostRuntime::create_stream() {
    const std::lock_guard lock(mutex_);
    ++streams_;
    return static_cast<StandInStream*>(new HostStream);
}

void HostRuntime::destroy_stream(void* stream) noexcept {
    delete &stream_of(stream);
    const std::lock_guard lock(mutex_);
    --streams_;
    stream_gone_.notify_all();
}

bool HostRuntime::await_streams_gone(std::chrono::steady_clock::time_point deadline) {
    std::unique_lock lock(mutex_);
    return stream_gone_.wait_until(lock, deadline, [this] { return streams_ == 0; });
}

bool HostRuntime::is_capturing(void* stream) {
    if (int device = current; refusing_device_.compare_exchange_strong(device, -1)) {
        throw Error(Errc::system, "the test refuses to answer");
    }
    return stream_of(stream).is_capturing();
}

void* HostRuntime::create_event() {
    return new HostEvent;
}

void HostRuntime::destroy_event(void* event) noexcept {
    delete &event_of(event);
}

void HostRuntime::record(void* event, void* stream) {
    HostStream& target = stream_of(stream);
    if (target.is_capturing()) {
        throw Error(Errc::system, "an event recorded in a capture and meant to be queried");
    }
    HostEvent& recorded = event_of(event);
    const std::uint64_t ticket = ++recorded.recorded;
    target.put([progress = recorded.progress, ticket] {
        {
            const std::lock_guard lock(progress->mutex);
            progress->passed = ticket;
        }
        progress->passed_more.notify_all();
    });
}

void HostRuntime::wait(void* stream, void* event) {
    const HostEvent& recorded = event_of(event);
    stream_of(stream).put([progress = recorded.progress, ticket = recorded.recorded] {
        std::unique_lock lock(progress->mutex);
        progress->passed_more.wait(lock, [&] { return progress->passed >= ticket; });
    });
}

bool HostRuntime::has_passed(void* event) {
    const HostEvent& recorded = event_of(event);
    const std::lock_guard lock(recorded.progress->mutex);
    return recorded.progress->passed >= recorded.recorded;
}

void* HostRuntime::allocate(std::size_t bytes) {
    constexpr std::size_t kAlignment = 256;
    if (current == full_device_) {
        return nullptr;
    }
    return std::aligned_alloc(kAlignment, (bytes + kAlignment - 1) / kAlignment * kAlignment);
}

void HostRuntime::free(void* memory) noexcept {
    std::free(memory);
}

void HostRuntime::clear(void* memory, std::size_t bytes) {
    std::memset(memory, 0, bytes);
}

void HostRuntime::copy(void* to, const void* from, std::size_t bytes, void* stream) {
    stream_of(stream).put([to, from, bytes] { std::memcpy(to, from, bytes); });
}

void HostRuntime::scale_float8(void* to, const void* from, DType dtype, std::size_t count,
                               float factor, void* stream) {
    stream_of(stream).put([=] {
        if (dtype == DType::float8_e4m3fn) {
            scale_values<float8_e4m3fn>(to, from, count, factor);
        } else {
            scale_values<float8_e5m2>(to, from, count, factor);
        }
    });
}

void HostRuntime::synchronize(void* stream) {
    stream_of(stream).synchronize();
}

}  // namespace regroup::testing
