// SPDX-License-Identifier: Apache-2.0
#include "agent/placement/topology.h"

#include <algorithm>
#include <cerrno>
#include <functional>
#include <hwloc.h>
#include <memory>
#include <unistd.h>

#include "agent/process/affinity.h"

namespace regroup::agent {
namespace {

using HwlocTopology = std::unique_ptr<hwloc_topology, decltype(&hwloc_topology_destroy)>;

/// hwloc loads all its plug-ins at start, and those for GPUs load whole drivers. None is needed
/// here. Only the environment can switch them off, so hwloc runs with a changed copy of it.
class WithoutPlugins {
   public:
    WithoutPlugins() : before_(::environ) {
        entries_.push_back(nowhere_);
        for (char** entry = before_; entry != nullptr && *entry != nullptr; ++entry) {
            entries_.push_back(*entry);
        }
        entries_.push_back(nullptr);
        ::environ = entries_.data();
    }
    ~WithoutPlugins() { ::environ = before_; }
    WithoutPlugins(const WithoutPlugins&) = delete;
    WithoutPlugins& operator=(const WithoutPlugins&) = delete;

   private:
    char nowhere_[32] = "HWLOC_PLUGINS_PATH=/dev/null";
    char** before_;
    std::vector<char*> entries_;
};

/// The lowest CPU of the last-level cache of `pu`, or `otherwise` without a cache.
int last_level_cache(hwloc_obj_t pu, int otherwise) {
    int lowest = otherwise;
    for (hwloc_obj_t object = pu; object != nullptr; object = object->parent) {
        if (hwloc_obj_type_is_dcache(object->type) != 0) {
            lowest = hwloc_bitmap_first(object->cpuset);
        }
    }
    return lowest;
}

/// The node of a CPU. hwloc gives memory-only nodes (of a GPU, or high-bandwidth memory) the CPUs
/// near them. The kernel numbers these nodes after those with CPUs.
hwloc_obj_t lowest_node(hwloc_topology_t topology, int cpu) {
    hwloc_obj_t lowest = nullptr;
    hwloc_obj_t node = nullptr;
    while ((node = hwloc_get_next_obj_by_type(topology, HWLOC_OBJ_NUMANODE, node)) != nullptr) {
        const bool here = hwloc_bitmap_isset(node->cpuset, static_cast<unsigned>(cpu)) != 0;
        if (here && (lowest == nullptr || node->os_index < lowest->os_index)) {
            lowest = node;
        }
    }
    return lowest;
}

Cpu describe(hwloc_topology_t topology, hwloc_obj_t pu) {
    Cpu cpu;
    cpu.id = static_cast<int>(pu->os_index);
    const hwloc_obj_t core = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_CORE, pu);
    cpu.core = core != nullptr ? hwloc_bitmap_first(core->cpuset) : cpu.id;
    const hwloc_obj_t node = lowest_node(topology, cpu.id);
    cpu.numa_node = node != nullptr ? static_cast<int>(node->os_index) : 0;
    cpu.cache = last_level_cache(pu, node != nullptr ? hwloc_bitmap_first(node->cpuset) : 0);
    const hwloc_obj_t package = hwloc_get_ancestor_obj_by_type(topology, HWLOC_OBJ_PACKAGE, pu);
    cpu.package = package != nullptr ? static_cast<int>(package->logical_index) : 0;
    return cpu;
}

/// `prepare` sets the source of the topology. It returns 0, or -1 with errno. `allowed`: empty
/// means all.
Result<Topology> read(Errc on_failure, const std::string& what, const std::vector<int>& allowed,
                      const std::function<int(hwloc_topology_t)>& prepare) {
    const WithoutPlugins guard;
    hwloc_topology_t raw = nullptr;
    if (hwloc_topology_init(&raw) != 0) {
        return Failure(on_failure, what + ": hwloc cannot be initialised");
    }
    const HwlocTopology topology(raw, hwloc_topology_destroy);
    // Include disallowed CPUs, because a core is named by its lowest CPU. Do not bind our threads
    // to each CPU, and skip devices, distances and speeds.
    constexpr unsigned long kFlags =
        HWLOC_TOPOLOGY_FLAG_INCLUDE_DISALLOWED | HWLOC_TOPOLOGY_FLAG_DONT_CHANGE_BINDING |
        HWLOC_TOPOLOGY_FLAG_NO_DISTANCES | HWLOC_TOPOLOGY_FLAG_NO_MEMATTRS |
        HWLOC_TOPOLOGY_FLAG_NO_CPUKINDS;
    if (hwloc_topology_set_flags(raw, kFlags) != 0 ||
        hwloc_topology_set_io_types_filter(raw, HWLOC_TYPE_FILTER_KEEP_NONE) != 0 ||
        prepare(raw) != 0 || hwloc_topology_load(raw) != 0) {
        return Failure(on_failure, what + ": hwloc: " + system_failure("it", errno).detail);
    }
    Topology loaded;
    hwloc_obj_t pu = nullptr;
    while ((pu = hwloc_get_next_obj_by_type(raw, HWLOC_OBJ_PU, pu)) != nullptr) {
        const int id = static_cast<int>(pu->os_index);
        if (allowed.empty() || std::find(allowed.begin(), allowed.end(), id) != allowed.end()) {
            loaded.cpus.push_back(describe(raw, pu));
        }
    }
    std::sort(loaded.cpus.begin(), loaded.cpus.end(),
              [](const Cpu& left, const Cpu& right) { return left.id < right.id; });
    if (loaded.cpus.empty()) {
        return Failure(on_failure, what + ": none of its CPUs is in the affinity mask");
    }
    return loaded;
}

}  // namespace

Result<Topology> Topology::load() {
    const auto allowed = allowed_cpus();
    if (!allowed) {
        return allowed.error();
    }
    return read(Errc::system, "the topology of this machine", *allowed,
                [](hwloc_topology_t) { return 0; });
}

Result<Topology> Topology::from_synthetic(const std::string& description,
                                          const std::vector<int>& allowed) {
    return read(Errc::invalid_argument, "the topology '" + description + "'", allowed,
                [&](hwloc_topology_t topology) {
                    return hwloc_topology_set_synthetic(topology, description.c_str());
                });
}

Result<Topology> Topology::from_xml(const std::string& xml, const std::vector<int>& allowed) {
    return read(Errc::invalid_argument, "the topology in XML", allowed,
                [&](hwloc_topology_t topology) {
                    return hwloc_topology_set_xmlbuffer(topology, xml.c_str(),
                                                        static_cast<int>(xml.size()) + 1);
                });
}

}  // namespace regroup::agent
