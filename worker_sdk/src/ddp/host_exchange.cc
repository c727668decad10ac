// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/ddp/host_exchange.h"

#include <algorithm>
#include <cstddef>

namespace regroup::ddp {

TensorView HostExchange::stage(TensorView host) {
    if (group_.device().kind == DeviceKind::cpu) {
        return host;
    }
    if (scratch_.bytes < host.bytes()) {
        scratch_ = group_.allocate(host.bytes());
    }
    device_.write(scratch_.data, host.data, host.bytes());
    return {scratch_.data, host.count, host.dtype, scratch_.device};
}

void HostExchange::unstage(TensorView staged, TensorView host) {
    if (staged.data != host.data) {
        device_.read(host.data, staged.data, host.bytes());
    }
}

std::vector<std::int64_t> HostExchange::gather(std::span<const std::int64_t> facts) {
    std::vector<std::int64_t> all(facts.size() * group_.world_size());
    const std::size_t mine = facts.size() * group_.rank();
    std::ranges::copy(facts, all.begin() + static_cast<std::ptrdiff_t>(mine));
    const TensorView host{std::span<std::int64_t>(all)};
    const TensorView staged = stage(host);
    group_.all_gather(staged.part(mine, facts.size()), staged).wait();
    unstage(staged, host);
    return all;
}

void HostExchange::broadcast(std::span<std::int64_t> facts, std::uint32_t root) {
    const TensorView host{facts};
    const TensorView staged = stage(host);
    group_.broadcast(staged, root).wait();
    unstage(staged, host);
}

void HostExchange::maximum(std::span<std::uint8_t> facts) {
    const TensorView host{facts};
    const TensorView staged = stage(host);
    group_.all_reduce(staged, ReduceOp::max).wait();
    unstage(staged, host);
}

}  // namespace regroup::ddp
