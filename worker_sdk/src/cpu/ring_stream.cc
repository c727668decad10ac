// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/ring_stream.h"

#include <algorithm>
#include <cstring>

#include "worker_sdk/src/base/copy.h"

namespace regroup::cpu {
namespace {

/// The other side learns of bytes in steps of this size, so that both copy at the same time.
constexpr std::size_t kStepBytes = std::size_t{16} << 10U;

/// The longest run from `position` that does not wrap around.
std::size_t run_at(const MessageRing& ring, std::uint64_t position, std::size_t bytes) noexcept {
    return std::min({bytes, ring.capacity - (position & (ring.capacity - 1)), kStepBytes});
}

}  // namespace

std::size_t RingStream::write_some(std::span<const iovec> parts) {
    std::size_t total = 0;
    for (const iovec& part : parts) {
        const std::size_t count =
            write({static_cast<const std::byte*>(part.iov_base), part.iov_len});
        total += count;
        if (count < part.iov_len) {
            break;
        }
    }
    if (total > 0) {
        outgoing_.written->store(written_);
        moved_ = true;
    }
    return total;
}

std::size_t RingStream::write(std::span<const std::byte> bytes) noexcept {
    std::size_t done = 0;
    while (done < bytes.size()) {
        if (written_ - written_read_ == outgoing_.capacity) {
            written_read_ = outgoing_.read->load();
        }
        const std::size_t room = outgoing_.capacity - (written_ - written_read_);
        const std::size_t count = run_at(outgoing_, written_, std::min(room, bytes.size() - done));
        if (count == 0) {
            break;
        }
        copy_bytes(outgoing_.data + (written_ & (outgoing_.capacity - 1)), bytes.data() + done,
                   count);
        done += count;
        written_ += count;
        if (done < bytes.size()) {
            outgoing_.written->store(written_, std::memory_order_release);
        }
    }
    return done;
}

std::size_t RingStream::read_some(std::span<std::byte> space) {
    std::size_t done = 0;
    while (done < space.size()) {
        if (read_ == read_written_) {
            read_written_ = incoming_.written->load();
        }
        const std::size_t count = run_at(
            incoming_, read_, std::min<std::size_t>(read_written_ - read_, space.size() - done));
        if (count == 0) {
            break;
        }
        copy_bytes(space.data() + done, incoming_.data + (read_ & (incoming_.capacity - 1)), count);
        done += count;
        read_ += count;
        if (done < space.size()) {
            incoming_.read->store(read_, std::memory_order_release);
        }
    }
    if (done > 0) {
        incoming_.read->store(read_);
        moved_ = true;
    }
    return done;
}

}  // namespace regroup::cpu
