// SPDX-License-Identifier: Apache-2.0
#include "agent/link/shared_page.h"

#include <cerrno>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace regroup::agent {

using worker_link::WorkerPage;

Result<std::shared_ptr<SharedPage>> SharedPage::create() {
    UniqueFd file(::memfd_create("regroup-worker", MFD_CLOEXEC | MFD_ALLOW_SEALING));
    if (!file) {
        return system_failure("memory to share with a worker: memfd_create", errno);
    }
    if (::ftruncate(file.get(), sizeof(WorkerPage)) != 0 ||
        ::fcntl(file.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL) != 0) {
        return system_failure("memory to share with a worker: its size", errno);
    }
    void* const address =
        ::mmap(nullptr, sizeof(WorkerPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) {
        return system_failure("memory to share with a worker: mmap", errno);
    }
    return std::shared_ptr<SharedPage>(new SharedPage(std::move(file), new (address) WorkerPage));
}

SharedPage::~SharedPage() {
    ::munmap(page_, sizeof(WorkerPage));
}

}  // namespace regroup::agent
