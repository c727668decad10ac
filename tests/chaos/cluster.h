// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <sys/types.h>
#include <vector>

#include "tests/chaos/dial.h"
#include "tests/chaos/network.h"
#include "tests/chaos/schedule.h"
#include "tests/support/program.h"

namespace regroup::chaos {

struct ClusterPlan {
    std::string regroup;  ///< Programs, as absolute paths.
    std::string worker;
    std::string delay_proxy;
    std::string clock_shim;
    std::string folder;  ///< Folder for all output; must exist.
    /// A round has all nodes but the standbys, and leaves out at least one.
    std::uint32_t nodes = 5;
    std::uint32_t workers = 2;
    std::size_t floats = 0;  ///< Number of floats that every worker trains besides.
    JobTraits traits{};
    std::vector<std::string> run_flags{};    ///< Further flags for every agent,
    std::vector<std::string> serve_flags{};  ///< and for the daemon.
};

/// The end of a launcher that was not killed.
struct Departure {
    std::uint32_t node = 0;
    int exit_code = 0;
    std::string output;
};

/// A node of the cluster: the processes of its launcher, of which 0 stands for none.
struct ClusterNode {
    std::unique_ptr<testing::Program> program;  ///< Null before its first start.
    std::unique_ptr<Dial> clock;
    /// From now on the end of its launcher is expected, until it is restarted.
    bool end_is_expected = false;

    /// True while its launcher runs.
    [[nodiscard]] bool is_up() const;
    [[nodiscard]] pid_t warden() const;
    [[nodiscard]] pid_t agent() const;
    /// Its living workers.
    [[nodiscard]] std::vector<pid_t> workers() const;
    /// The worker `number` modulo their number.
    [[nodiscard]] pid_t worker(std::uint32_t number) const;
    /// All processes, in an order in which none can react to the end of another.
    [[nodiscard]] std::vector<pid_t> family() const;
    [[nodiscard]] std::string output() const;
    /// The exit code of the launcher; nothing if it does not end within `limit`.
    [[nodiscard]] std::optional<int> await_end(std::chrono::milliseconds limit) const;
};

/// The job under test: a daemon and some nodes on a separate network, with small disks, adjustable
/// clocks and one slow line. Host 0 has the daemon, host i + 1 is node i. The destructor ends all
/// its processes. One thread, which must have its own mount namespace.
class Cluster {
   public:
    /// Makes folders, disks and the network; starts no program. Errors: system.
    static Result<std::unique_ptr<Cluster>> build(const ClusterPlan& plan);
    ~Cluster();
    Cluster(const Cluster&) = delete;
    Cluster& operator=(const Cluster&) = delete;

    void start_daemon();
    void start_node(std::uint32_t node);

    /// Asks the daemon to drain a node, as an operator would; false if it refuses.
    [[nodiscard]] bool drain(std::uint32_t node) const;

    /// A standby that is not about to end, according to the daemon; if there is one.
    [[nodiscard]] std::optional<std::uint32_t> standby() const;

    [[nodiscard]] ClusterNode& node(std::uint32_t node) { return nodes_.at(node); }
    /// The daemon; 0 if it does not run.
    [[nodiscard]] pid_t daemon() const;
    [[nodiscard]] std::string daemon_output() const { return daemon_->output(); }

    /// Launchers that have ended unexpectedly since the last call.
    [[nodiscard]] std::vector<Departure> departures();
    /// The daemon's exit code; nothing if it does not end within `limit`.
    [[nodiscard]] std::optional<int> await_daemon_end(std::chrono::milliseconds limit);
    /// Waits until all processes of ended launchers and daemons have ended. Returns a sentence for
    /// each that has not.
    [[nodiscard]] std::vector<std::string> find_orphans();

    [[nodiscard]] const Network& network() const { return network_; }
    [[nodiscard]] Dial& end() { return end_; }
    [[nodiscard]] Dial& slow_line() { return slow_line_; }
    [[nodiscard]] Dial& daemon_clock() { return daemon_clock_; }
    void fill_disk(const std::string& disk) const;
    void free_disk(const std::string& disk) const;
    /// The small disks, each a folder: a node's run directory, the daemon's state.
    [[nodiscard]] std::string run_disk(std::uint32_t node) const;
    [[nodiscard]] std::string token_flag() const {
        return "--token-file=" + plan_.folder + "/token";
    }
    [[nodiscard]] std::string state_disk() const { return plan_.folder + "/state"; }
    [[nodiscard]] std::string step_logs() const { return plan_.folder + "/steps"; }
    /// Which all nodes share.
    [[nodiscard]] std::string snapshot_folder() const { return plan_.folder + "/snapshots"; }

    static constexpr const char* kJob = "chaos";

   private:
    Cluster(const ClusterPlan& plan, Network network);
    [[nodiscard]] Result<void> start_slow_line();
    [[nodiscard]] std::string path(const std::string& name) const {
        return plan_.folder + "/" + name;
    }
    [[nodiscard]] std::vector<std::string> run_command(std::uint32_t node) const;

    ClusterPlan plan_;
    Network network_;
    Dial end_;
    Dial slow_line_;
    Dial daemon_clock_;
    std::unique_ptr<testing::Program> proxy_;
    std::unique_ptr<testing::Program> daemon_;
    std::vector<ClusterNode> nodes_;
    std::vector<std::unique_ptr<testing::Program>> ended_;
};

/// Gives this process a mount namespace of its own, with which the disks go. Errors: system.
Result<void> leave_mount_namespace();

}  // namespace regroup::chaos
