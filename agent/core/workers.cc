// SPDX-License-Identifier: Apache-2.0
#include "agent/core/workers.h"

#include <csignal>

namespace regroup::agent {

std::uint64_t Workers::held_step() const {
    std::uint64_t step = 0;
    for (const Worker& worker : workers_) {
        step = std::max(step, worker.step);
    }
    return step;
}

Workers::Places Workers::assign(RoundId round) {
    Places places;
    for (std::uint32_t local_rank = 0; local_rank < size(); ++local_rank) {
        Worker& worker = workers_[local_rank];
        if (worker.alive()) {
            places.assigned.push_back(local_rank);
        } else {
            worker.launched_in = round;
            places.launched.push_back(local_rank);
        }
        worker.state = WorkerState::training;
        worker.round = round;
    }
    return places;
}

Workers::LocalRanks Workers::start_ahead() {
    LocalRanks started;
    for (std::uint32_t local_rank = 0; local_rank < size(); ++local_rank) {
        if (!workers_[local_rank].alive()) {
            workers_[local_rank].state = WorkerState::idle;
            started.push_back(local_rank);
        }
    }
    return started;
}

Workers::Orders Workers::order(Wanted wanted, int signal) {
    Orders orders;
    for (std::uint32_t local_rank = 0; local_rank < size(); ++local_rank) {
        Worker& worker = workers_[local_rank];
        switch (next_order(worker, wanted)) {
            case Order::none:
                break;
            case Order::suspend:
                worker.state = WorkerState::suspending;
                orders.suspended.push_back(local_rank);
                break;
            case Order::save:
                worker.state = WorkerState::saving;
                break;
            case Order::terminate:
                worker.state = WorkerState::ending;
                worker.signal = signal;
                orders.terminated.push_back(local_rank);
                break;
            case Order::kill:
                worker.state = WorkerState::ending;
                worker.signal = SIGKILL;
                worker.round = RoundId::none;
                orders.killed.push_back(local_rank);
                break;
        }
    }
    return orders;
}

void Workers::stop_at_agreed_step() {
    for (Worker& worker : workers_) {
        if (worker.state == WorkerState::training) {
            worker.state = WorkerState::suspending;
        }
    }
}

Workers::LocalRanks Workers::force() {
    LocalRanks forced;
    for (std::uint32_t local_rank = 0; local_rank < size(); ++local_rank) {
        Worker& worker = workers_[local_rank];
        if (!worker.is_out()) {
            worker.state = WorkerState::ending;
            worker.signal = worker.signal == 0 ? SIGKILL : worker.signal;
            forced.push_back(local_rank);
        }
    }
    return forced;
}

}  // namespace regroup::agent
