// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "rendezvous/base/result.h"
#include "rendezvous/files/unique_fd.h"
#include "rendezvous/worker_link/collectives_page.h"
#include "rendezvous/worker_link/page.h"

namespace regroup::agent {

/// The memory that the agent shares with one worker process: a Content in an anonymous file. Its
/// size is sealed, so that neither side can make the other fault.
///
/// Held by shared_ptr: a thread that waits for a word in it keeps it mapped.
template <class Content>
class SharedMemory {
   public:
    /// Errors: system.
    static Result<std::shared_ptr<SharedMemory>> create();

    ~SharedMemory();
    SharedMemory(const SharedMemory&) = delete;
    SharedMemory& operator=(const SharedMemory&) = delete;

    [[nodiscard]] Content& operator*() const noexcept { return *content_; }
    [[nodiscard]] Content* operator->() const noexcept { return content_; }
    /// The descriptor stays owned by this object.
    [[nodiscard]] int fd() const noexcept { return file_.get(); }
    /// By which processes of this user can open it while this process lives.
    [[nodiscard]] std::string path() const;

   private:
    SharedMemory(UniqueFd file, Content* content) noexcept
        : file_(std::move(file)), content_(content) {}

    UniqueFd file_;
    Content* content_;
};

using SharedPage = SharedMemory<worker_link::WorkerPage>;
using SharedCollectives = SharedMemory<worker_link::CollectivesPage>;

}  // namespace regroup::agent
