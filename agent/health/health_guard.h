// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include <boost/asio/io_context.hpp>

#include "agent/health/node_check.h"
#include "agent/process/linux_launcher.h"
#include "rendezvous/core/messages.h"

namespace regroup::agent {

/// Checks the health of the node of an Agent, and prints what is wrong with it, each finding once.
/// One thread; all references outlive this object.
class HealthGuard {
   public:
    /// `fault`: why the node may not take part, one sentence; empty: it may.
    using OnDone = std::function<void(const std::string& fault)>;
    using Say = std::function<void(const std::string& line)>;

    HealthGuard(boost::asio::io_context& io, LinuxLauncher& launcher, health::CheckOptions options,
                const rendezvous::JobPolicy& policy, const rendezvous::Offer& offer, Say say);

    /// The time that the driver of GPUs has for a check before the node joins, or while it waits.
    /// Without persistence mode it needs up to a second for each GPU when nothing has used it.
    static constexpr Duration kLimit = std::chrono::seconds(60);

    /// Calls `on_done` once: before it returns if the driver of GPUs need not be asked and nothing
    /// is computed, else from the event loop. A check that begins later drops it.
    void check_before_joining(OnDone on_done);
    void check_after_failure(OnDone on_done);
    /// Computes nothing, whatever the options say.
    void check_while_waiting(OnDone on_done);
    /// Drops `on_done` of the check that runs.
    void cancel() { check_.cancel(); }

    /// True if a check may find a fault, and takes some time.
    [[nodiscard]] bool may_refuse() const { return check_.needs_process(); }
    /// The time that a check after a failure has for the driver of GPUs.
    [[nodiscard]] static Duration limit_after_failure(const rendezvous::JobPolicy& policy);
    /// The node is connected from this address of its own.
    void connected(const std::string& address);
    /// The daemon has told its wall-clock time, in ms since 1970; 0: it has not.
    void heard_time(std::int64_t daemon_ms);

   private:
    [[nodiscard]] health::NodeCheck::OnDone telling(OnDone on_done);
    void tell(const std::vector<health::Finding>& findings);

    health::NodeCheck check_;
    Duration failure_limit_;
    bool has_peers_;
    std::string address_;  ///< By which other nodes reach this one.
    Say say_;
    std::set<std::string> told_;
    bool knows_time_ = false;
};

}  // namespace regroup::agent
