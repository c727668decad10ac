// SPDX-License-Identifier: Apache-2.0
#include "agent/placement/gpu_shares.h"

#include <algorithm>
#include <charconv>
#include <cstddef>

#include "rendezvous/base/printable.h"

namespace regroup::agent {
namespace {

bool names_device(std::string_view entry, std::uint32_t gpu_count) {
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
        return true;
    }
    std::uint32_t index = 0;
    const auto [end, error] = std::from_chars(entry.data(), entry.data() + entry.size(), index);
    return error == std::errc() && end == entry.data() + entry.size() &&
           (gpu_count == 0 || index < gpu_count);
}

/// The source of the devices, for errors.
std::string source(const GpuShareRequest& request) {
    return request.visible ? " (CUDA_VISIBLE_DEVICES='" + *request.visible + "')" : "";
}

}  // namespace

std::vector<std::string> visible_entries(std::string_view list, std::uint32_t gpu_count) {
    std::vector<std::string> entries;
    for (std::size_t at = 0; at <= list.size();) {
        const std::size_t end = std::min(list.find(',', at), list.size());
        std::string_view entry = list.substr(at, end - at);
        entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
        entry = entry.substr(0, entry.find_last_not_of(' ') + 1);
        if (!names_device(entry, gpu_count)) {
            break;
        }
        entries.emplace_back(entry);
        at = end + 1;
    }
    return entries;
}

Result<GpuShares> share_gpus(const GpuShareRequest& request) {
    ENSURE(request.rank_count >= 1);
    std::vector<std::string> devices;
    if (request.visible) {
        devices = visible_entries(*request.visible, request.gpu_count);
    }
    for (std::uint32_t index = 0; !request.visible && index < request.gpu_count; ++index) {
        devices.push_back(std::to_string(index));
    }
    const auto device_count = static_cast<std::uint32_t>(devices.size());
    const bool automatic = request.gpus_per_rank == 0;
    const std::string flag =
        "--gpus-per-rank " + (automatic ? "auto" : std::to_string(request.gpus_per_rank));
    if (device_count == 0) {
        return Failure(
            Errc::invalid_argument,
            flag + ": this node has no NVIDIA GPU that this process may use" + source(request));
    }
    const std::uint32_t share =
        automatic ? device_count / request.rank_count : request.gpus_per_rank;
    if (share == 0 || device_count / share < request.rank_count) {
        const std::uint64_t needed = std::uint64_t{std::max(share, 1U)} * request.rank_count;
        return Failure(Errc::invalid_argument,
                       flag + ": " + counted(request.rank_count, "worker") + " of this node need " +
                           std::to_string(needed) + " GPUs, and " + counted(device_count, "GPU") +
                           " can be seen" + source(request) + ", enough for " +
                           counted(device_count / std::max(share, 1U), "worker") +
                           "; give --nproc-per-node to match");
    }
    GpuShares shares{.gpus_per_rank = share, .visible = {}, .note = {}};
    for (std::size_t rank = 0; rank < request.rank_count; ++rank) {
        std::string& list = shares.visible.emplace_back();
        for (std::size_t i = rank * share; i < (rank + 1) * share; ++i) {
            list += (list.empty() ? "" : ",") + devices[i];
        }
    }
    if (const std::uint32_t left = device_count - share * request.rank_count; left > 0) {
        shares.note = flag + ": of " + counted(device_count, "GPU") + ", " + std::to_string(left) +
                      (left == 1 ? " is" : " are") + " not used by any worker";
    }
    return shares;
}

}  // namespace regroup::agent
