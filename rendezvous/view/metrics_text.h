// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <vector>

#include "rendezvous/view/daemon_counters.h"
#include "rendezvous/view/job_view.h"
#include "rendezvous/view/metrics_writer.h"

namespace regroup::rendezvous {

struct MetricsOptions {
    MetricsFormat format = MetricsFormat::prometheus;
    bool nodes = false;  ///< Further metrics of each node: up to 5 each.
};

/// The metrics of `jobs`, and of the daemon unless `daemon` is null; docs/metrics.md lists them.
/// About 200 samples for each job. The names of metrics and labels are part of the interface.
[[nodiscard]] std::string metrics_text(const std::vector<JobView>& jobs,
                                       const DaemonCounters* daemon, const MetricsOptions& options);

}  // namespace regroup::rendezvous
