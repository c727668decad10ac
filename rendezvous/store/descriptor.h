// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <unistd.h>
#include <utility>

#include "rendezvous/base/clock.h"

namespace regroup::store {

/// Owns a file descriptor.
class Descriptor {
   public:
    Descriptor() = default;
    explicit Descriptor(int fd) noexcept : fd_(fd) {}
    Descriptor(Descriptor&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        if (this != &other) {
            reset();
            fd_ = std::exchange(other.fd_, -1);
        }
        return *this;
    }
    ~Descriptor() { reset(); }

    [[nodiscard]] int get() const noexcept { return fd_; }
    [[nodiscard]] bool is_open() const noexcept { return fd_ >= 0; }

    void reset() noexcept {
        if (fd_ >= 0) {
            ::close(fd_);
        }
        fd_ = -1;
    }

   private:
    int fd_ = -1;
};

enum class Readiness { ready, timed_out, interrupted };

/// Waits until `fd` is ready for `events` of poll(2); with `fd` -1, until the deadline.
/// `interrupted` as soon as `interrupt_fd` is readable.
[[nodiscard]] Readiness await_descriptor(int fd, short events, int interrupt_fd, Instant deadline);

}  // namespace regroup::store
