// SPDX-License-Identifier: Apache-2.0
#include "agent/placement/gpu_shares.h"

#include <algorithm>
#include <cstddef>
#include <span>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::agent {
namespace {

bool names_device(std::string_view entry, std::uint32_t gpu_count) {
    if (entry.starts_with("GPU-") || entry.starts_with("MIG-")) {
        return true;
    }
    const auto index = parse_number<std::uint32_t>(entry);
    return index && (gpu_count == 0 || *index < gpu_count);
}

/// The source of the devices, for errors.
std::string source(const GpuShareRequest& request) {
    return request.visible ? " (CUDA_VISIBLE_DEVICES='" + *request.visible + "')" : "";
}

}  // namespace

std::vector<std::string> visible_entries(std::string_view list, std::uint32_t gpu_count) {
    std::vector<std::string> entries;
    for (const std::string_view part : split(list, ',')) {
        const std::string_view entry = trimmed(part);
        if (!names_device(entry, gpu_count)) {
            break;
        }
        entries.emplace_back(entry);
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
        const std::span own(devices.begin() + static_cast<std::ptrdiff_t>(rank * share), share);
        shares.visible.push_back(joined(own, ","));
    }
    if (const std::uint32_t left = device_count - share * request.rank_count; left > 0) {
        shares.note = flag + ": of " + counted(device_count, "GPU") + ", " + std::to_string(left) +
                      (left == 1 ? " is" : " are") + " not used by any worker";
    }
    return shares;
}

}  // namespace regroup::agent
