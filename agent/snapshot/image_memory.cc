// SPDX-License-Identifier: Apache-2.0
#include "agent/snapshot/image_memory.h"

#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <limits>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <utility>

#include "rendezvous/cgroup/cgroup.h"

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

Result<void> ImageMemory::allocate() {
    if (::fallocate(file_.get(), 0, 0, static_cast<off_t>(bytes_)) != 0) {
        return system_failure("fallocate of " + std::to_string(bytes_) + " bytes of memory", errno);
    }
    return {};
}

std::uint64_t node_memory_left() {
    std::uint64_t left = std::numeric_limits<std::uint64_t>::max();
    std::ifstream lines("/proc/meminfo");
    std::string name;
    for (std::uint64_t kibibytes = 0; lines >> name;) {
        if (name == "MemAvailable:" && lines >> kibibytes) {
            left = kibibytes * 1024;
            break;
        }
    }
    return std::min(left, cgroup::memory_left().value_or(left));
}

}  // namespace regroup::agent
