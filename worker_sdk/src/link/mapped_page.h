// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <optional>

#include "rendezvous/base/result.h"
#include "rendezvous/worker_link/page.h"
#include "worker_sdk/src/net/fork_guard.h"
#include "worker_sdk/src/net/socket.h"

namespace regroup::link {

/// The memory that this worker shares with its agent. A forked child has a page of its own.
class MappedPage {
   public:
    /// Failures: `invalid_argument` for the page of an agent of another build, `system`.
    [[nodiscard]] static Result<std::unique_ptr<MappedPage>> map(const UniqueFd& file);
    ~MappedPage();
    MappedPage(const MappedPage&) = delete;
    MappedPage& operator=(const MappedPage&) = delete;

    worker_link::WorkerPage& operator*() const noexcept { return *page_; }
    worker_link::WorkerPage* operator->() const noexcept { return page_; }

   private:
    explicit MappedPage(worker_link::WorkerPage* page);

    worker_link::WorkerPage* const page_;
    std::optional<net::MappingForkGuard> guard_;  // Left before the page is unmapped.
};

}  // namespace regroup::link
