// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/agreement.h"

#include <regroup/error.h>

#include <algorithm>
#include <utility>
#include <vector>

namespace regroup::nccl {
namespace {

std::vector<Proposal> gather(Lane& lane, const Signature& signature, const Proposal& mine) {
    constexpr std::size_t kWords = sizeof(Proposal) / sizeof(std::uint64_t);
    const Backend& backend = lane.backend();
    const cuda::DeviceScope scope(backend.runtime, lane.identity().device.index);
    Proposal* const table = lane.memory().proposals();
    Proposal* const own = table + lane.identity().rank;
    void* const stream = lane.issuer().own_stream();
    Proposal& on_host = lane.memory().proposal();
    on_host = mine;
    backend.runtime.copy(own, &on_host, sizeof mine, stream);
    // In the group's own stream: the caller's may be held up, or captured into a graph.
    Call call{.operation = {.signature = signature, .options = {.stream = Stream{stream}}},
              .launch =
                  [&api = backend.api, own, table](ncclComm_t comm, ncclRedOp_t /*reduction*/,
                                                   cudaStream_t into) {
                      return api.all_gather(own, table, kWords, ncclUint64, comm, into);
                  },
              .work = lane.in_flight().make_work()};
    const Work work(call.work);
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    lane.issuer().issue(std::move(calls));
    work.wait();
    std::vector<Proposal> proposals(lane.identity().members.size());
    backend.runtime.copy(proposals.data(), table, proposals.size() * sizeof(Proposal), stream);
    backend.runtime.synchronize(stream);
    return proposals;
}

std::vector<Proposal> exchange(Lane& lane, const Plan& plan) {
    try {
        return gather(lane, plan.signature,
                      {.digest = plan.digest, .is_able = plan.obstacle ? 0U : 1U});
    } catch (const Error& error) {
        const std::string text = plan.purpose + ": " + error.what();
        lane.in_flight().post({error.code(), text, {}});  // Ignored if the group has ended with it.
        throw Error(error.code(), text);
    }
}

}  // namespace

void agree(Lane& lane, const Plan& plan) {
    const std::vector<Proposal> proposals = exchange(lane, plan);
    const GroupIdentity& identity = lane.identity();
    const auto name_of = [&](std::vector<Proposal>::const_iterator place) {
        return identity.name_of(
            identity.members[static_cast<std::size_t>(place - proposals.begin())]);
    };
    const auto other = std::ranges::find_if(
        proposals, [&](const Proposal& each) { return each.digest != plan.digest; });
    if (other != proposals.end()) {
        throw Error(Errc::invalid_argument,
                    plan.purpose + ": " + plan.difference(name_of(other), other->digest));
    }
    if (plan.obstacle) {
        throw Error(*plan.obstacle);
    }
    const auto unable = std::ranges::find(proposals, 0U, &Proposal::is_able);
    if (unable != proposals.end()) {
        throw Error(Errc::system, plan.purpose + ": " + name_of(unable) + " " + plan.undone);
    }
}

}  // namespace regroup::nccl
