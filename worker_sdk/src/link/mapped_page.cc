// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/link/mapped_page.h"

#include <cerrno>
#include <string>
#include <sys/mman.h>
#include <sys/stat.h>

namespace regroup::link {

using worker_link::WorkerPage;

Result<std::unique_ptr<MappedPage>> MappedPage::map(const UniqueFd& file) {
    struct stat facts{};
    if (::fstat(file.get(), &facts) != 0 ||
        static_cast<std::size_t>(facts.st_size) < sizeof(WorkerPage)) {
        return Failure(Errc::invalid_argument,
                       "the agent's page is too short: it is of another "
                       "build of regroup than this program's SDK");
    }
    void* const address =
        ::mmap(nullptr, sizeof(WorkerPage), PROT_READ | PROT_WRITE, MAP_SHARED, file.get(), 0);
    if (address == MAP_FAILED) {
        return system_failure("mapping the agent's page", errno);
    }
    std::unique_ptr<MappedPage> page(new MappedPage(static_cast<WorkerPage*>(address)));
    if ((*page)->version != worker_link::kPageVersion) {
        return Failure(Errc::invalid_argument, "the agent's page has version " +
                                                   std::to_string((*page)->version) +
                                                   ", this program's SDK knows " +
                                                   std::to_string(worker_link::kPageVersion));
    }
    return page;
}

MappedPage::MappedPage(WorkerPage* page) : page_(page) {
    guard_.emplace(page_, sizeof(WorkerPage));
}

MappedPage::~MappedPage() {
    guard_.reset();
    ::munmap(page_, sizeof(WorkerPage));
}

}  // namespace regroup::link
