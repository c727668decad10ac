// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/group/refusing_process_group.h"

#include <regroup/error.h>

#include <algorithm>

namespace regroup {
namespace {

std::string list(const std::vector<std::uint32_t>& ranks) {
    constexpr std::size_t kNamedMax = 16;  // More than this help nobody.
    std::string text = ranks.size() == 1 ? "rank " : "ranks ";
    for (std::size_t i = 0; i < std::min(ranks.size(), kNamedMax); ++i) {
        text += (i == 0 ? "" : ", ") + std::to_string(ranks[i]);
    }
    if (ranks.size() > kNamedMax) {
        text += " and " + std::to_string(ranks.size() - kNamedMax) + " more";
    }
    return text;
}

}  // namespace

RefusingProcessGroup::RefusingProcessGroup(std::string_view backend, Device device,
                                           std::string_view name, std::uint32_t rank,
                                           const std::vector<std::uint32_t>& members)
    : backend_(backend),
      device_(device),
      world_size_(static_cast<std::uint32_t>(members.size())),
      explanation_("rank " + std::to_string(rank) + " is not in group \"" + std::string(name) +
                   "\", which consists of " + list(members) +
                   "; only its members may use it, and others see that by rank() == kNotAMember") {}

void RefusingProcessGroup::refuse(std::string_view operation) const {
    throw Error(Errc::invalid_argument, std::string(operation) + ": " + explanation_);
}

Work RefusingProcessGroup::all_reduce(TensorView /*buffer*/, Reduction /*reduction*/) {
    refuse("all_reduce");
}
Work RefusingProcessGroup::reduce(TensorView /*buffer*/, Reduction /*reduction*/,
                                  std::uint32_t /*root*/) {
    refuse("reduce");
}
Work RefusingProcessGroup::reduce_scatter(ConstTensorView /*input*/, TensorView /*output*/,
                                          Reduction /*reduction*/) {
    refuse("reduce_scatter");
}
Work RefusingProcessGroup::broadcast(TensorView /*buffer*/, std::uint32_t /*root*/) {
    refuse("broadcast");
}
Work RefusingProcessGroup::all_gather(ConstTensorView /*input*/, TensorView /*output*/) {
    refuse("all_gather");
}
Work RefusingProcessGroup::gather(ConstTensorView /*input*/, TensorView /*output*/,
                                  std::uint32_t /*root*/) {
    refuse("gather");
}
Work RefusingProcessGroup::scatter(ConstTensorView /*input*/, TensorView /*output*/,
                                   std::uint32_t /*root*/) {
    refuse("scatter");
}
Work RefusingProcessGroup::all_to_all(ConstTensorView /*input*/, TensorView /*output*/) {
    refuse("all_to_all");
}
Work RefusingProcessGroup::barrier() {
    refuse("barrier");
}
Work RefusingProcessGroup::send(ConstTensorView /*buffer*/, std::uint32_t /*peer*/,
                                std::uint32_t /*tag*/) {
    refuse("send");
}
Work RefusingProcessGroup::recv(TensorView /*buffer*/, std::uint32_t /*peer*/,
                                std::uint32_t /*tag*/) {
    refuse("recv");
}
std::unique_ptr<ProcessGroup> RefusingProcessGroup::new_group(
    const std::vector<std::uint32_t>& /*ranks*/, std::string_view /*name*/) {
    refuse("new_group");
}
Buffer RefusingProcessGroup::allocate(std::size_t /*bytes*/) {
    refuse("allocate");
}

void RefusingProcessGroup::abort(std::string_view /*reason*/) noexcept {
    // Nothing is ever in flight here.
}

}  // namespace regroup
