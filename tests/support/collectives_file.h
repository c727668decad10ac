// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <cstdint>
#include <new>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>
#include <vector>

#include "rendezvous/worker_link/collectives_page.h"

namespace regroup::testing {

/// A page of collectives, as an agent makes it for a worker.
class CollectivesFile {
   public:
    CollectivesFile() : file_(::memfd_create("collectives", MFD_CLOEXEC)) {
        void* const address = ::ftruncate(file_, sizeof(worker_link::CollectivesPage)) == 0
                                  ? ::mmap(nullptr, sizeof(worker_link::CollectivesPage),
                                           PROT_READ | PROT_WRITE, MAP_SHARED, file_, 0)
                                  : MAP_FAILED;
        if (address == MAP_FAILED) {
            throw std::runtime_error("no memory for a page of collectives");
        }
        page_ = new (address) worker_link::CollectivesPage;
    }
    ~CollectivesFile() {
        ::munmap(page_, sizeof(worker_link::CollectivesPage));
        ::close(file_);
    }
    CollectivesFile(const CollectivesFile&) = delete;
    CollectivesFile& operator=(const CollectivesFile&) = delete;

    /// For kCollectivesVariable of this process and its forked children.
    [[nodiscard]] std::string path() const { return "/proc/self/fd/" + std::to_string(file_); }
    /// The same for any process, while this one lives.
    [[nodiscard]] std::string path_for_others() const {
        return "/proc/" + std::to_string(::getpid()) + "/fd/" + std::to_string(file_);
    }
    [[nodiscard]] int descriptor() const { return file_; }
    [[nodiscard]] worker_link::CollectivesPage& page() { return *page_; }
    [[nodiscard]] worker_link::CollectiveGroup& group(std::size_t index) {
        return page_->groups[index];
    }
    [[nodiscard]] std::size_t groups_in_use() const {
        return static_cast<std::size_t>(
            std::ranges::count_if(page_->groups, [](const worker_link::CollectiveGroup& group) {
                return group.state == worker_link::CollectiveGroup::kInUse;
            }));
    }

   private:
    int file_;
    worker_link::CollectivesPage* page_ = nullptr;
};

}  // namespace regroup::testing
