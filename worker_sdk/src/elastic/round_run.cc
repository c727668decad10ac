// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/elastic/round_run.h"

namespace regroup::elastic {

void RoundRun::form(const ElasticOptions& options, const std::shared_ptr<LearnedOrders>& orders) {
    steps = ProcessGroup::create(options.backend, context,
                                 {.timeout = options.timeout, .name = "elastic"});
    orders->begin_round();
    GroupOrders::attach(*steps, orders);
    if (steps->device().kind != DeviceKind::cpu) {
        own_control = ProcessGroup::create("cpu", context,
                                           {.timeout = options.timeout, .name = "elastic-control"});
    }
}

void RoundRun::give_up(const std::string& reason) const noexcept {
    scope().interrupt(reason);
    for (ProcessGroup* const group : {steps.get(), own_control.get()}) {
        if (group != nullptr) {
            group->abort(reason);
        }
    }
}

}  // namespace regroup::elastic
