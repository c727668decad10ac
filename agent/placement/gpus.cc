// SPDX-License-Identifier: Apache-2.0
#include "agent/placement/gpus.h"

#include <algorithm>
#include <fstream>
#include <string_view>
#include <system_error>

#include "rendezvous/base/text.h"

namespace regroup::agent {
namespace {

namespace fs = std::filesystem;

Gpu read_gpu(const fs::path& root, const fs::path& folder) {
    Gpu gpu;
    gpu.address = folder.filename();
    std::ifstream information(folder / "information");
    for (std::string line; std::getline(information, line);) {
        const std::string_view text = line;
        const std::size_t colon = text.find(':');
        if (colon == std::string_view::npos) {
            continue;
        }
        const std::string_view name = trimmed(text.substr(0, colon));
        const std::string_view value = trimmed(text.substr(colon + 1));
        if (name == "GPU UUID") {
            gpu.uuid = value;
        } else if (name == "Model") {
            gpu.model = value;
        }
    }
    int node = -1;
    std::ifstream(root / "sys/bus/pci/devices" / gpu.address / "numa_node") >> node;
    gpu.numa_node_known = node >= 0;
    gpu.numa_node = std::max(node, 0);
    return gpu;
}

/// All GPUs of the machine in the order of the bus. The parts of an address have a fixed width,
/// except for a long domain.
std::vector<Gpu> read_all(const fs::path& root) {
    std::vector<Gpu> gpus;
    std::error_code none;
    for (const auto& entry : fs::directory_iterator(root / "proc/driver/nvidia/gpus", none)) {
        gpus.push_back(read_gpu(root, entry.path()));
    }
    std::sort(gpus.begin(), gpus.end(), [](const Gpu& left, const Gpu& right) {
        return std::pair(left.address.size(), left.address) <
               std::pair(right.address.size(), right.address);
    });
    return gpus;
}

/// The GPU that an entry of CUDA_VISIBLE_DEVICES names, or null.
const Gpu* find(const std::vector<Gpu>& all, std::string_view entry) {
    if (const auto index = parse_number<int>(entry)) {
        const bool exists = *index >= 0 && static_cast<std::size_t>(*index) < all.size();
        return exists ? &all[static_cast<std::size_t>(*index)] : nullptr;
    }
    // "MIG-GPU-<uuid>/instance/instance", the older of two spellings, names the GPU.
    if (entry.starts_with("MIG-GPU-")) {
        entry = entry.substr(4, entry.find('/') - 4);
    }
    const Gpu* found = nullptr;
    for (const Gpu& gpu : all) {
        if (entry.starts_with("GPU-") && gpu.uuid.starts_with(entry)) {
            if (found != nullptr) {
                return nullptr;
            }
            found = &gpu;
        }
    }
    return found;
}

/// The driver shows question marks for the UUID of a GPU that was not used since the boot.
bool tells_all_uuids(const std::vector<Gpu>& all) {
    return std::all_of(all.begin(), all.end(), [](const Gpu& gpu) {
        return !gpu.uuid.empty() && gpu.uuid.find('?') == std::string::npos;
    });
}

Result<std::vector<Gpu>> select_visible(const std::vector<Gpu>& all, const std::string& visible) {
    const std::string name = "CUDA_VISIBLE_DEVICES='" + visible + "'";
    const auto unknown = [&](const std::string& entry, const std::string& why) {
        return Failure(Errc::invalid_argument, name + ": which GPU '" + entry + why);
    };
    std::vector<Gpu> selected;
    for (const std::string_view part : split(visible, ',')) {
        const std::string entry(trimmed(part));
        if (entry.starts_with("MIG-") && !entry.starts_with("MIG-GPU-")) {
            return unknown(entry,
                           "' is a part of only the driver knows; name whole GPUs, or bind without "
                           "--numa-binding");
        }
        const Gpu* gpu = find(all, entry);
        if (gpu == nullptr && entry.find("GPU-") != entry.npos && !tells_all_uuids(all)) {
            return unknown(entry,
                           "' is the driver does not tell yet; run nvidia-smi once, or name GPUs "
                           "by their index");
        }
        if (gpu == nullptr) {
            break;
        }
        const bool whole = !entry.starts_with("MIG-");
        if (whole && std::find(selected.begin(), selected.end(), *gpu) != selected.end()) {
            return Failure(Errc::invalid_argument,
                           name + " names a GPU twice, for which CUDA shows none at all");
        }
        selected.push_back(*gpu);
    }
    return selected;
}

}  // namespace

Result<Gpus> find_gpus(const GpuSearch& search) {
    Gpus gpus;
    gpus.list = read_all(search.root);
    if (gpus.list.empty()) {
        return gpus;
    }
    const bool alike = std::all_of(gpus.list.begin(), gpus.list.end(), [&](const Gpu& gpu) {
        return gpu.model == gpus.list.front().model;
    });
    const bool named = search.visible && search.visible->starts_with("GPU-");
    if (!alike && !named && search.device_order != "PCI_BUS_ID") {
        gpus.note =
            "the GPUs are of different models, and CUDA numbers the fastest first, but bindings "
            "follow the PCI bus; set CUDA_DEVICE_ORDER=PCI_BUS_ID to make both the same";
    }
    if (search.visible) {
        auto selected = select_visible(gpus.list, *search.visible);
        if (!selected) {
            return selected.error();
        }
        gpus.list = *std::move(selected);
    }
    return gpus;
}

}  // namespace regroup::agent
