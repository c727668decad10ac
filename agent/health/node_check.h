// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/health/facts.h"
#include "agent/health/findings.h"
#include "agent/health/folder_probe.h"
#include "agent/health/places.h"
#include "agent/process/linux_launcher.h"
#include "rendezvous/base/clock.h"

namespace regroup::health {

enum class Level : std::uint8_t {
    off,
    basic,  ///< Reads what the system and the driver know.
    full,   ///< Computes, too: see probe_cpus().
};

struct CheckOptions {
    Level level = Level::off;
    Needs needs = {};
    std::filesystem::path log_folder = {};  ///< Of the output of the workers; empty: none.
    Places places = {};
    /// This program, which probes when called with the word of answer_probe().
    std::string program = "/proc/self/exe";
};

/// True if this machine has a driver of GPUs, and the workers may see one.
[[nodiscard]] bool may_use_gpus(const CheckOptions& options);

/// True if a check with these options needs another process. Only then it may find a fault, and
/// takes more than microseconds.
[[nodiscard]] bool needs_process(const CheckOptions& options);

/// The longest time of a check with these options, if the driver of GPUs has `limit` to answer.
[[nodiscard]] Duration time_limit(const CheckOptions& options, Duration limit);

/// Checks the health of this node. Limits and space are read at once, which takes microseconds, and
/// a tenth of a second once if the log folder's file system does not answer. The driver of GPUs is
/// asked by another process, and only if there is one: a call into it may crash or never return.
/// One thread; all references outlive this object.
class NodeCheck {
   public:
    using OnDone = std::function<void(const std::vector<Finding>&)>;

    NodeCheck(boost::asio::io_context& io, agent::LinuxLauncher& launcher, CheckOptions options);
    /// Kills the probe process, and drops `on_done`.
    ~NodeCheck();
    NodeCheck(const NodeCheck&) = delete;
    NodeCheck& operator=(const NodeCheck&) = delete;

    /// Calls `on_done` once: before it returns if no other process is needed, else from the event
    /// loop, at the latest after time_limit(). Time in which this process itself did not run does
    /// not count. `has_run`: see Needs. A second call ends the first one and drops its `on_done`.
    void run(Duration limit, bool has_run, OnDone on_done);
    /// The same for a node whose workers wait, and may hold memory of GPUs: computes nothing, also
    /// with Level::full.
    void run_lightly(Duration limit, OnDone on_done);
    /// Ends the check that runs, and drops its `on_done`.
    void cancel();

    [[nodiscard]] bool needs_process() const { return health::needs_process(options_); }

    /// Checks the interface that has this address of the node. The first call is what later ones
    /// compare with. Empty for loopback, and with Level::off.
    [[nodiscard]] std::vector<Finding> check_link(const std::string& address);

    /// See judge_clock. Empty with Level::off.
    [[nodiscard]] std::vector<Finding> check_clock(Duration ahead) const;

    /// The measurements of the last probe. Empty before, and without a probe process.
    [[nodiscard]] const Probed& probed() const noexcept { return probed_; }

   private:
    struct Probe;

    void run_at(Level level, Duration limit, bool has_run, OnDone on_done);
    [[nodiscard]] std::vector<Finding> judge(const Driver& driver, const Needs& needs);

    boost::asio::io_context& io_;
    agent::LinuxLauncher& launcher_;
    CheckOptions options_;
    FolderProbe folders_;
    Probed probed_;
    std::optional<Link> first_link_;
    bool has_begun_ = false;
    std::shared_ptr<Probe> probe_;
};

/// The first argument of the program for a probe process.
inline constexpr const char* kProbeWord = "probe-node";

/// The work of a probe process, whose arguments after kProbeWord are these. Prints its answer.
/// Returns the exit code: 0, or 2 for other arguments.
int answer_probe(const std::vector<std::string>& arguments);

}  // namespace regroup::health
