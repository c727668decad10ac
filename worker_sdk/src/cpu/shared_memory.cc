// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cpu/shared_memory.h"

#include <regroup/error.h>

#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

#include "rendezvous/base/result.h"

namespace regroup::cpu {
namespace {

constexpr std::size_t kPageBytes = 4096;

[[noreturn]] void fail(const std::string& what, std::size_t bytes) {
    throw Error(Errc::system,
                system_failure(what + " of " + std::to_string(bytes) + " bytes", errno).detail);
}

/// A signal interrupts fallocate, which then gives everything back and has to begin again; with a
/// timer that ticks faster than the kernel finds the memory, it would never finish.
int reserve(int fd, off_t length) {
    sigset_t all;
    sigset_t before;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    const int status = ::fallocate(fd, 0, 0, length);
    const int error_number = errno;
    pthread_sigmask(SIG_SETMASK, &before, nullptr);
    errno = error_number;
    return status;
}

}  // namespace

SharedMemory SharedMemory::create(std::size_t bytes, bool reserved) {
    SharedMemory memory;
    memory.bytes_ = (bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
    memory.descriptor_ = UniqueFd(::memfd_create("regroup", MFD_CLOEXEC));
    const int fd = memory.descriptor_.get();
    const auto length = static_cast<off_t>(memory.bytes_);
    if (!memory.descriptor_ || (reserved ? reserve(fd, length) : ::ftruncate(fd, length)) != 0) {
        fail("shared memory", memory.bytes_);
    }
    memory.map();
    return memory;
}

void SharedMemory::map() {
    void* const address =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor_.get(), 0);
    if (address == MAP_FAILED) {
        fail("mapping shared memory", bytes_);
    }
    data_ = static_cast<std::byte*>(address);
    // Where the administrator allows it for shared memory, few page faults instead of many.
    static_cast<void>(::madvise(data_, bytes_, MADV_HUGEPAGE));
}

std::optional<SharedMemory> SharedMemory::open(const Ticket& ticket) {
    if (ticket.bytes == 0) {
        return std::nullopt;
    }
    SharedMemory memory;
    memory.bytes_ = ticket.bytes;
    memory.descriptor_ = ticket.file.open(O_RDWR);
    struct stat facts{};
    // A peer may name any file of this user. Shared memory has no name in a file system.
    if (!memory.descriptor_ || ::fstat(memory.descriptor_.get(), &facts) != 0 ||
        !S_ISREG(facts.st_mode) || facts.st_nlink != 0 ||
        static_cast<std::uint64_t>(facts.st_size) != ticket.bytes) {
        return std::nullopt;
    }
    try {
        memory.map();
    } catch (const Error&) {
        return std::nullopt;
    }
    memory.close_ticket();
    return memory;
}

SharedMemory::~SharedMemory() {
    if (data_ != nullptr) {
        ::munmap(data_, bytes_);
    }
}

SharedMemory::SharedMemory(SharedMemory&& other) noexcept
    : descriptor_(std::move(other.descriptor_)),
      data_(std::exchange(other.data_, nullptr)),
      bytes_(std::exchange(other.bytes_, 0)) {}

SharedMemory& SharedMemory::operator=(SharedMemory&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    std::swap(data_, other.data_);
    std::swap(bytes_, other.bytes_);
    return *this;
}

SharedMemory::Ticket SharedMemory::ticket() const {
    const FileTicket file = FileTicket::of(descriptor_);
    return {.bytes = file.descriptor < 0 ? 0 : bytes_, .file = file};
}

}  // namespace regroup::cpu
