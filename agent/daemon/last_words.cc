// SPDX-License-Identifier: Apache-2.0
#include "agent/daemon/last_words.h"

#include <algorithm>
#include <variant>

#include "rendezvous/protocol/codec.h"
#include "rendezvous/protocol/framing.h"

namespace regroup::agent {

using rendezvous::NodeReport;
using rendezvous::NodeState;

std::string words_if_killed(const AgentConfig& own, const NodeReport& report) {
    using protocol::encode;
    using protocol::make_frame;
    const rendezvous::FromAgent join =
        rendezvous::Join{own.job, own.node, own.policy, own.offer, report};
    const rendezvous::FromAgent leave = rendezvous::Leave{"its agent was killed", true};
    return make_frame(encode(join)) + make_frame(encode(leave));
}

std::optional<NodeReport> LastWords::before(const rendezvous::FromAgent& message,
                                            const NodeReport& now) {
    if (const auto* report = std::get_if<rendezvous::Report>(&message)) {
        said_ = report->report;
    } else if (const auto* join = std::get_if<rendezvous::Join>(&message)) {
        said_ = join->report;
    }
    const bool trained = said_ && said_->elastic && said_->state == NodeState::running;
    if (!std::holds_alternative<rendezvous::Leave>(message) || !trained ||
        said_->round != now.round || now.step <= said_->held_step) {
        return std::nullopt;
    }
    // The last report with the step that the workers have committed since.
    said_->step = std::max(said_->step, now.step);
    said_->held_step = now.step;
    return said_;
}

}  // namespace regroup::agent
