// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "agent/link/shared_memory.h"
#include "agent/process/readable_watch.h"

namespace regroup::agent {

/// Reports the death of workers before the kernel frees their memory. A pidfd or a socket reports
/// it only afterwards, a tenth of a second later for a few gigabytes.
///
/// The SDK of a worker holds WorkerPage::alive in the robust list of one of its threads. When that
/// thread ends, the kernel marks the word and wakes waiters. The mark is only a hint: the thread
/// also ends at exec and in an orderly exit. The owner then reads the state of the process
/// (read_exit).
///
/// Only a blocked thread can wait for words, so this class has one thread for each 127 workers. The
/// threads pass the keys through a descriptor. On kernels before Linux 5.16, which cannot wait for
/// several words, no death is reported.
class DeathWatch {
   public:
    /// `on_death` is called from the event loop with a key of add(), once for each add(). Errors:
    /// system.
    static Result<std::unique_ptr<DeathWatch>> start(
        boost::asio::io_context& io, std::function<void(std::uint64_t key)> on_death);

    /// Ends the threads. on_death is not called any more.
    ~DeathWatch();
    DeathWatch(const DeathWatch&) = delete;
    DeathWatch& operator=(const DeathWatch&) = delete;

    /// Watches `alive` of `page`, which the worker need not hold yet. Replaces the page of that
    /// key. A word that is marked already is reported at once.
    void add(std::uint64_t key, std::shared_ptr<SharedPage> page);
    /// Any key is allowed. A report that is already queued may still come.
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
