// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <thread>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// Memory for one image of a snapshot that this agent fills: a memfd, so that workers can map it.
class ImageMemory {
   public:
    /// Takes no memory yet. Errors: system.
    static Result<std::shared_ptr<ImageMemory>> create(std::uint64_t bytes);
    ~ImageMemory();
    ImageMemory(const ImageMemory&) = delete;
    ImageMemory& operator=(const ImageMemory&) = delete;

    /// Takes the memory, so that a shortage is an error and no signal later. Blocks while the
    /// kernel clears it. Errors: system.
    Result<void> allocate() { return allocate(0, bytes_); }
    /// The same for some of it.
    Result<void> allocate(std::uint64_t begin, std::uint64_t bytes);

    [[nodiscard]] int fd() const noexcept { return file_.get(); }
    [[nodiscard]] std::span<std::byte> bytes() noexcept { return {memory_, bytes_}; }
    [[nodiscard]] std::uint64_t size() const noexcept { return bytes_; }

   private:
    ImageMemory(UniqueFd file, std::byte* memory, std::uint64_t bytes) noexcept
        : file_(std::move(file)), memory_(memory), bytes_(bytes) {}

    UniqueFd file_;
    std::byte* memory_;
    std::uint64_t bytes_;
};

/// Takes the memory of an image on a thread of its own, from the beginning on: the kernel needs as
/// long to clear it as a fast network to fill it.
class AllocationAhead {
   public:
    /// `image` outlives this.
    explicit AllocationAhead(ImageMemory& image);
    ~AllocationAhead();
    AllocationAhead(const AllocationAhead&) = delete;
    AllocationAhead& operator=(const AllocationAhead&) = delete;

    /// Waits until the first `bytes` are there. Errors: system.
    Result<void> await(std::uint64_t bytes);

   private:
    void run();

    ImageMemory& image_;
    std::mutex mutex_;
    std::condition_variable changed_;
    // Guarded by mutex_.
    std::uint64_t taken_ = 0;
    Result<void> outcome_{};
    bool is_over_ = false;
    std::thread thread_;
};

}  // namespace regroup::agent
