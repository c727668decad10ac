// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/image_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include "rendezvous/files/background.h"

namespace regroup::agent {

Result<std::shared_ptr<ImageMemory>> ImageMemory::create(std::uint64_t bytes) {
    if (bytes == 0) {
        return invalid_argument("a snapshot has at least one byte");
    }
    UniqueFd file(::memfd_create("regroup-snapshot", MFD_CLOEXEC));
    if (!file) {
        return system_failure("memfd_create", errno);
    }
    if (::ftruncate(file.get(), static_cast<off_t>(bytes)) != 0) {
        return system_failure("ftruncate of " + std::to_string(bytes) + " bytes of memory", errno);
    }
    void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (memory == MAP_FAILED) {
        return system_failure("mmap of a snapshot's memory", errno);
    }
    return std::shared_ptr<ImageMemory>(
        new ImageMemory(std::move(file), static_cast<std::byte*>(memory), bytes));
}

ImageMemory::~ImageMemory() {
    ::munmap(memory_, bytes_);
}

Result<void> ImageMemory::allocate(std::uint64_t begin, std::uint64_t bytes) {
    if (::fallocate(file_.get(), 0, static_cast<off_t>(begin), static_cast<off_t>(bytes)) != 0) {
        return system_failure("fallocate of " + std::to_string(bytes) + " bytes of memory", errno);
    }
    return {};
}

AllocationAhead::AllocationAhead(ImageMemory& image) : image_(image) {
    const files::AllSignalsBlocked blocked;
    try {
        thread_ = std::thread([this] { run(); });
    } catch (const std::system_error&) {  // Then the one who waits does it.
        run();
    }
}

AllocationAhead::~AllocationAhead() {
    {
        const std::lock_guard lock(mutex_);
        is_over_ = true;
    }
    if (thread_.joinable()) {
        thread_.join();
    }
}

void AllocationAhead::run() {
    constexpr std::uint64_t kStepBytes = std::uint64_t{16} << 20U;
    std::unique_lock lock(mutex_);
    while (taken_ < image_.size() && outcome_ && !is_over_) {
        const std::uint64_t begin = taken_;
        const std::uint64_t bytes = std::min(kStepBytes, image_.size() - begin);
        lock.unlock();
        Result<void> outcome = image_.allocate(begin, bytes);
        lock.lock();
        outcome_ = std::move(outcome);
        taken_ = begin + bytes;
        changed_.notify_all();
    }
}

Result<void> AllocationAhead::await(std::uint64_t bytes) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return taken_ >= bytes || !outcome_; });
    return outcome_;
}

}  // namespace regroup::agent
