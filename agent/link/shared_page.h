// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/worker_link/page.h"

namespace regroup::agent {

/// The memory that the agent shares with one worker process: a WorkerPage in an anonymous file. Its
/// size is sealed, so that neither side can make the other fault.
///
/// Held by shared_ptr: a thread that waits for a word in it keeps it mapped.
class SharedPage {
   public:
    /// Errors: system.
    static Result<std::shared_ptr<SharedPage>> create();

    ~SharedPage();
    SharedPage(const SharedPage&) = delete;
    SharedPage& operator=(const SharedPage&) = delete;

    [[nodiscard]] worker_link::WorkerPage& operator*() const noexcept { return *page_; }
    [[nodiscard]] worker_link::WorkerPage* operator->() const noexcept { return page_; }
    /// The descriptor stays owned by this object.
    [[nodiscard]] int fd() const noexcept { return file_.get(); }

   private:
    SharedPage(UniqueFd file, worker_link::WorkerPage* page) noexcept
        : file_(std::move(file)), page_(page) {}

    UniqueFd file_;
    worker_link::WorkerPage* page_;
};

}  // namespace regroup::agent
