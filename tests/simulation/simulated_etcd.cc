// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/simulated_etcd.h"

#include <algorithm>
#include <utility>

namespace regroup::simulation {

Duration SimulatedEtcd::delay() {
    return between(world_.random, world_.plan.etcd_delay / 2, 2 * world_.plan.etcd_delay);
}

void SimulatedEtcd::cut(std::uint32_t daemon, bool cut) {
    cut_.resize(std::max<std::size_t>(cut_.size(), daemon + 1));
    cut_[daemon] = cut;
}

bool SimulatedEtcd::reachable(std::uint32_t daemon) const {
    return !down_ && !(daemon < cut_.size() && cut_[daemon]);
}

void SimulatedEtcd::call(EtcdCall call) {
    auto id = static_cast<std::uint32_t>(calls_.size());
    if (free_.empty()) {
        calls_.emplace_back();
    } else {
        id = free_.back();
        free_.pop_back();
    }
    calls_[id] = std::move(call);
    world_.queue.push(world_.now + delay(), EventKind::etcd_call, id);
}

void SimulatedEtcd::on_arrival(std::uint32_t id) {
    if (!reachable(calls_[id].daemon)) {
        free_.push_back(id);
        return;
    }
    carry_out(calls_[id]);
    world_.queue.push(world_.now + delay(), EventKind::etcd_answer, id);
}

std::optional<EtcdCall> SimulatedEtcd::take(std::uint32_t id) {
    free_.push_back(id);
    if (!reachable(calls_[id].daemon)) {
        return std::nullopt;
    }
    return std::exchange(calls_[id], EtcdCall{});
}

bool SimulatedEtcd::leads(const EtcdCall& call) const {
    return call.epoch == epoch_ && world_.now < lease_until_;
}

void SimulatedEtcd::carry_out(EtcdCall& call) {
    switch (call.kind) {
        case EtcdCall::Kind::campaign:
            call.granted = world_.now >= lease_until_;
            if (call.granted) {
                ++epoch_;
                leader_ = call.daemon;
                lease_until_ = world_.now + world_.plan.lease;
            }
            break;
        case EtcdCall::Kind::keep_alive:
            call.granted = leads(call);
            if (call.granted) {
                lease_until_ = world_.now + world_.plan.lease;
            }
            break;
        case EtcdCall::Kind::append:
            call.granted = leads(call) && call.job == log_.job();
            if (call.granted && call.begin && !log_.begun()) {
                log_.begin(*call.begin);
            }
            // A retry after a lost answer: the records are there already, and only this epoch can
            // have written them.
            if (call.granted && call.position == log_.size()) {
                effects_ = commit(world_, log_, call.batch);
            }
            break;
    }
    call.epoch = epoch_;
    call.leader = leader_;
}

}  // namespace regroup::simulation
