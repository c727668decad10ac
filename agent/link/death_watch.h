// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/link/shared_page.h"
#include "agent/process/readable_watch.h"

namespace regroup::agent {

/// Tells of the death of workers before the kernel takes their memory apart: a pidfd, or the end of
/// a socket, comes after that, which takes a tenth of a second for a few gigabytes.
///
/// A worker's SDK holds WorkerPage::alive in the robust list of a thread of its own. When that
/// thread ends, for whatever reason, the kernel marks the word and wakes who waits for it. That is
/// a hint and no more: the thread also ends at exec and in an orderly exit. The owner asks the
/// kernel how the process stands (read_exit).
///
/// A word can be waited for only by a blocked thread, so this class has one, for up to 127 workers,
/// and another one for each 127 more; they do nothing else, and hand over through a descriptor.
/// Where the kernel cannot wait for several words (before Linux 5.16), nothing is ever told.
class DeathWatch {
   public:
    /// `on_death` is called from the event loop with a key of `add`, once for each of its calls.
    /// Errors: system.
    static Result<std::unique_ptr<DeathWatch>> start(
        boost::asio::io_context& io, std::function<void(std::uint64_t key)> on_death);

    /// Ends the threads; nothing is told any more.
    ~DeathWatch();
    DeathWatch(const DeathWatch&) = delete;
    DeathWatch& operator=(const DeathWatch&) = delete;

    /// Watches `alive` of `page`, which need not be held yet; in place of what was watched under
    /// that key. A word that is marked already is told at once.
    void add(std::uint64_t key, std::shared_ptr<SharedPage> page);
    /// Of any key. News that is on its way may still be told.
    void remove(std::uint64_t key);

   private:
    class Lane;

    explicit DeathWatch(std::function<void(std::uint64_t key)> on_death);
    void handle_readable();

    std::function<void(std::uint64_t key)> on_death_;
    std::optional<ReadableWatch> news_;
    std::vector<std::unique_ptr<Lane>> lanes_;
};

}  // namespace regroup::agent
