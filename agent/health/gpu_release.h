// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <sys/types.h>

#include <boost/asio/io_context.hpp>
#include <boost/asio/steady_timer.hpp>

#include "agent/health/node_check.h"
#include "agent/process/linux_launcher.h"
#include "agent/process/readable_watch.h"
#include "rendezvous/base/clock.h"

namespace regroup::agent {

struct GpuReleaseOptions {
    /// The workers may use GPUs. Which of them did is not known any more when one has ended: its
    /// files are closed. A look at each worker while it lives would cost all jobs something. So
    /// this is one fact of the node: it has a driver, and CUDA_VISIBLE_DEVICES does not hide all
    /// GPUs.
    bool wanted = false;
    health::Places places{};
    /// This program, which runs health::answer_holders() when called with its word.
    std::string program = "/proc/self/exe";
    /// The time that the driver has, counted from the last end. A healthy driver needs up to some
    /// seconds for a process with much pinned memory. A job must not wait for a broken driver for
    /// longer than a worker needs to start: without memory the worker fails, and says why.
    Duration limit = std::chrono::seconds(10);
};

/// Lets successors of workers wait until the driver has freed the GPU memory of the ended ones. The
/// driver does so some time after the end, and a successor that comes earlier may find too little.
///
/// Another process asks the driver, since a call into it may never return. That process starts with
/// the first end, so that the library is loaded while the round is formed.
///
/// One thread; all references outlive this object.
class GpuRelease {
   public:
    using Say = std::function<void(const std::string& line)>;
    /// Gives a successor its place. May call this object, but must not destroy it.
    using Give = std::function<void()>;

    GpuRelease(boost::asio::io_context& io, const Clock& clock, LinuxLauncher& launcher,
               GpuReleaseOptions options, Say say);

    /// These processes have ended, or end for certain. Successors have to wait for their memory.
    void add(const std::set<pid_t>& ended);
    /// Asks about the added processes from now on: a successor is likely.
    void begin();
    /// Calls `give` before it returns if the memory is free, else when it is, or when the limit has
    /// passed. `key` is the successor's own.
    void when_free(std::uint64_t key, Give give);
    /// Calls what when_free() holds back for this key. False if it holds nothing back.
    bool hurry(std::uint64_t key);
    /// Drops it.
    void forget(std::uint64_t key) { held_back_.erase(key); }
    /// Ends the waiting. Everything that is held back is dropped.
    void stop();

   private:
    struct Watcher {
        ChildProcess process;
        ReadableWatch socket;
    };

    [[nodiscard]] Result<void> start_watcher();
    [[nodiscard]] Result<void> ask();
    void hear();
    /// "HEARD PID PID": the answer of answer_holders().
    void take(const std::string& answer);
    void watcher_ended(pid_t pid, ExitStatus status);
    void fail(const std::string& why);
    /// The waiting is over.
    void finish();

    boost::asio::io_context& io_;
    const Clock& clock_;
    LinuxLauncher& launcher_;
    const GpuReleaseOptions options_;
    Say say_;
    std::set<pid_t> added_;    ///< Not asked about yet.
    std::set<pid_t> holders_;  ///< Asked about, and not known to be free.
    std::optional<Watcher> watcher_;
    std::list<ChildProcess> former_watchers_;  ///< They end by themselves, if the driver lets them.
    std::uint64_t asked_ = 0;                  ///< Packets.
    std::map<std::uint64_t, Give> held_back_;
    Instant held_back_at_{};  ///< The first of them.
    boost::asio::steady_timer timer_;
};

}  // namespace regroup::agent
