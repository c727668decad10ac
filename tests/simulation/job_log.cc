// SPDX-License-Identifier: Apache-2.0
#include "tests/simulation/job_log.h"

#include <algorithm>

#include "rendezvous/base/ensure.h"
#include "tests/simulation/world.h"

namespace regroup::simulation {

namespace {

rendezvous::NodeId node_of(const rendezvous::Event& event) {
    return std::visit(
        [](const auto& e) {
            if constexpr (requires { rendezvous::NodeId(e.node); }) {
                return rendezvous::NodeId(e.node);
            } else {
                return rendezvous::NodeId();
            }
        },
        event);
}

}  // namespace

void RoutineFold::add(journal::Entry entry) {
    rendezvous::NodeId node = node_of(*entry.event);
    std::erase_if(kept_, [&](const auto& other) { return other.first == node; });
    kept_.emplace_back(std::move(node), Record{std::move(entry), true});
}

std::vector<Record> RoutineFold::take() {
    std::vector<Record> result;
    for (auto& [node, record] : kept_) {
        result.push_back(std::move(record));
    }
    kept_.clear();
    return result;
}

void JobLog::begin(rendezvous::RendezvousCore machine) {
    machine_.emplace(std::move(machine));
    size_ = 0;
    last_at_ = Instant::min();
}

void JobLog::forget() {
    ++job_;
    machine_.reset();
    size_ = 0;
    last_at_ = Instant::min();
}

rendezvous::Effects JobLog::append(const journal::Entry& entry) {
    ENSURE(machine_.has_value() && entry.at >= last_at_);
    last_at_ = entry.at;
    ++size_;
    return journal::apply(*machine_, entry);
}

std::vector<rendezvous::Effects> commit(World& world, JobLog& log,
                                        const std::vector<Record>& batch) {
    std::vector<rendezvous::Effects> result;
    result.reserve(batch.size());
    for (const Record& record : batch) {
        const rendezvous::Effects& effects = result.emplace_back(log.append(record.entry));
        if (record.folded) {
            continue;
        }
        world.tell([&](Checker& c) {
            if (record.entry.event) {
                c.on_daemon_event(world.now, *record.entry.event);
            }
            c.on_daemon_effects(world.now, log.machine(), effects);
        });
    }
    return result;
}

}  // namespace regroup::simulation
