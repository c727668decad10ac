// SPDX-License-Identifier: Apache-2.0
#include "agent/link/shared_memory.h"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace regroup::agent {

namespace {

worker_link::WorkerPage* begin(void* memory, worker_link::WorkerPage* /*type*/) {
    return new (memory) worker_link::WorkerPage;
}

// All of it is zero, which is a page without groups. So a worker that writes none needs one page of
// memory, and not all of them.
worker_link::CollectivesPage* begin(void* memory, worker_link::CollectivesPage* /*type*/) {
    auto* const page = static_cast<worker_link::CollectivesPage*>(memory);
    page->version = worker_link::kCollectivesVersion;
    return page;
}

}  // namespace

template <class Content>
Result<std::shared_ptr<SharedMemory<Content>>> SharedMemory<Content>::create() {
    UniqueFd file(::memfd_create("regroup-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) {
        return system_failure("memory to share with a worker: memfd_create", errno);
    }
    if (::ftruncate(file.get(), sizeof(Content)) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_failure("memory to share with a worker: its size", errno);
    }
    void* const address =
        ::mmap(nullptr, sizeof(Content), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) {
        return system_failure("memory to share with a worker: mmap", errno);
    }
    Content* const content = begin(address, static_cast<Content*>(nullptr));
    return std::shared_ptr<SharedMemory>(new SharedMemory(std::move(file), content));
}

template <class Content>
SharedMemory<Content>::~SharedMemory() {
    ::munmap(content_, sizeof(Content));
}

template <class Content>
std::string SharedMemory<Content>::path() const {
    return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(fd());
}

template class SharedMemory<worker_link::WorkerPage>;
template class SharedMemory<worker_link::CollectivesPage>;

}  // namespace regroup::agent
