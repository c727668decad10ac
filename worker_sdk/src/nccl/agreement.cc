// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/nccl/agreement.h"

#include <regroup/error.h>

#include <utility>

namespace regroup::nccl {
namespace {

std::vector<Proposal> gather(Lane& lane, const Signature& signature, const Proposal& mine) {
    constexpr std::size_t kWords = sizeof(Proposal) / sizeof(std::uint64_t);
    const Backend& backend = lane.backend();
    const cuda::DeviceScope scope(backend.runtime, lane.identity().device.index);
    auto* const table = static_cast<Proposal*>(lane.table());
    Proposal* const own = table + lane.identity().rank;
    void* const stream = lane.own_stream();
    lane.proposal() = mine;
    backend.runtime.copy(own, &lane.proposal(), sizeof mine, stream);
    // In the group's own stream: the caller's may be held up, or captured into a graph.
    Call call{.operation = {.signature = signature, .options = {.stream = Stream{stream}}},
              .launch =
                  [&api = backend.api, own, table](ncclComm_t comm, ncclRedOp_t /*reduction*/,
                                                   cudaStream_t into) {
                      return api.all_gather(own, table, kWords, ncclUint64, comm, into);
                  },
              .work = std::make_shared<Work::State>(lane.waiters())};
    const Work work(call.work);
    std::vector<Call> calls;
    calls.push_back(std::move(call));
    lane.issue(std::move(calls));
    work.wait();
    std::vector<Proposal> proposals(lane.identity().members.size());
    backend.runtime.copy(proposals.data(), table, proposals.size() * sizeof(Proposal), stream);
    backend.runtime.synchronize(stream);
    return proposals;
}

}  // namespace

std::vector<Proposal> exchange(Lane& lane, const std::string& purpose, const Signature& signature,
                               const Proposal& mine) {
    try {
        return gather(lane, signature, mine);
    } catch (const Error& error) {
        const std::string text = purpose + ": " + error.what();
        lane.post({error.code(), text, {}});  // Ignored if the group has ended with this.
        throw Error(error.code(), text);
    }
}

}  // namespace regroup::nccl
