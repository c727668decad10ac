// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

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

    /// Takes the memory, so that a shortage is an error and no signal later. Blocks. Errors:
    /// system.
    Result<void> allocate();

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

/// The memory that this node has left: what the kernel can give, within the limits of the cgroups.
[[nodiscard]] std::uint64_t node_memory_left();

}  // namespace regroup::agent
