// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/lane.h"

#include <regroup/error.h>

#include <future>
#include <string>
#include <utility>
#include <vector>

#include "worker_sdk/src/base/flight_recorder.h"
#include "worker_sdk/src/base/helper_thread.h"

namespace regroup::nccl {
namespace {

GroupIdentity recorded(GroupIdentity identity) {
    identity.record = flight_recorder().add({.name = identity.name,
                                             .backend = "nccl",
                                             .ranks = identity.members,
                                             .rank = identity.rank});
    // Of starts it knows only that the stream has got the operation.
    identity.report = std::make_shared<GroupReport>(
        GroupReport::Identity{.backend = worker_link::CollectiveBackend::nccl,
                              .name = identity.name,
                              .ranks = identity.members,
                              .rank = identity.rank});
    return identity;
}

}  // namespace

std::shared_ptr<Lane> Lane::make(const Backend& backend, GroupIdentity identity,
                                 std::shared_ptr<net::Wakeup> watchdog,
                                 const std::shared_ptr<Reaper>& reaper) {
    const cuda::DeviceScope scope(backend.runtime, identity.device.index);
    return {new Lane(backend, std::move(identity), std::move(watchdog), reaper),
            [reaper](Lane* lane) { reaper->take([lane] { delete lane; }); }};
}

Lane::Lane(const Backend& backend, GroupIdentity identity, std::shared_ptr<net::Wakeup> watchdog,
           std::shared_ptr<Reaper> reaper)
    : backend_(backend),
      identity_(recorded(std::move(identity))),
      reaper_(std::move(reaper)),
      communicator_(std::make_shared<Communicator>(backend.api, backend.blocking)),
      in_flight_(backend_, identity_, std::move(watchdog)),
      memory_(backend_, identity_, *communicator_, in_flight_, reaper_),
      issuer_(backend_, identity_, *communicator_, in_flight_) {}

CommReport Lane::complete(Begin begin, Instant deadline) {
    CommReport report;
    if (backend_.blocking) {
        const auto call = std::make_shared<std::packaged_task<CommReport()>>(
            [&runtime = backend_.runtime, device = identity_.device.index,
             communicator = communicator_, work = std::move(begin)] {
                try {
                    runtime.set_device(device);
                    runtime.stay_out_of_captures();
                } catch (const Error&) {
                    // The GPU is lost; NCCL will say so.
                }
                return work(*communicator);
            });
        std::future<CommReport> ended = call->get_future();
        try {
            start_helper_thread("regroup-nccl", [call] { (*call)(); }).detach();
        } catch (const Error& error) {
            return {.state = CommState::failed,
                    .result = ncclInternalError,
                    .text = std::string("no thread can be started for the call: ") + error.what()};
        }
        if (ended.wait_until(deadline) != std::future_status::ready) {
            return {.state = CommState::in_progress};
        }
        report = ended.get();
    } else {
        report = begin(*communicator_);
    }
    const bool begun = report.state == CommState::ready || report.state == CommState::in_progress;
    return begun ? communicator_->await_ready(deadline) : report;
}

CommReport Lane::split(int color, int key) {
    const InFlight::Issuing issuing(in_flight_,
                                    {Operation{.signature = {.number = issuer_.count_collective(),
                                                             .kind = OperationKind::new_group}}});
    return complete(
        [color, key](Communicator& communicator) { return communicator.begin_split(color, key); },
        after(SteadyClock().now(), identity_.timeout));
}

void Lane::drop_child() {
    const auto child = std::make_shared<Communicator>(backend_.api, backend_.blocking);
    if (communicator_->hand_child_to(*child)) {
        reaper_->take([&api = backend_.api, child] {
            Communicator* const self = child.get();
            Communicator::abort_all(api, {&self, 1});
        });
    }
}

std::optional<GroupFailure> Lane::check(Instant now) {
    // Ask NCCL first: when NCCL gives up, its kernels also end, without a result.
    const CommReport report = communicator_->glance();
    return in_flight_.check(report, now);
}

void Lane::leave() {
    memory_.end_registrations();
    // The other half of the limit is for the abort.
    const CommReport report =
        complete([](Communicator& communicator) { return communicator.begin_leaving(); },
                 after(SteadyClock().now(), backend_.freeing_max / 2));
    if (report.state == CommState::ready) {
        communicator_->finish_leaving();
    } else {
        Communicator* const self = communicator_.get();
        Communicator::abort_all(backend_.api, {&self, 1});
    }
    memory_.note_gone();
}

void Lane::abort_all(const NcclApi& api, std::span<const std::shared_ptr<Lane>> lanes) {
    std::vector<Communicator*> communicators;
    for (const std::shared_ptr<Lane>& lane : lanes) {
        communicators.push_back(lane->communicator_.get());
    }
    Communicator::abort_all(api, communicators);
    for (const std::shared_ptr<Lane>& lane : lanes) {
        lane->memory_.note_gone();
    }
}

}  // namespace regroup::nccl
