// SPDX-License-Identifier: Apache-2.0
#include "agent/health/host_probe.h"

#include <filesystem>
#include <fstream>
#include <optional>
#include <sys/resource.h>
#include <system_error>

#include "agent/health/folder_probe.h"
#include "agent/process/own_limits.h"
#include "agent/process/system_calls.h"
#include "rendezvous/cgroup/cgroup.h"

namespace regroup::health {

namespace {

namespace fs = std::filesystem;

std::uint64_t soft(const rlimit& limit) {
    return limit.rlim_cur == RLIM_INFINITY ? Host::kUnlimited : limit.rlim_cur;
}

std::uint64_t soft_limit(__rlimit_resource_t what) {
    rlimit limit{};
    return ::getrlimit(what, &limit) == 0 ? soft(limit) : Host::kUnlimited;
}

std::optional<std::int64_t> read_number(const fs::path& file) {
    std::int64_t number = 0;
    // The kernel refuses some of these files while the interface is down.
    return std::ifstream(file) >> number ? std::optional(number) : std::nullopt;
}

bool has_entries(const fs::path& folder) {
    std::error_code none;
    return fs::directory_iterator(folder, none) != fs::directory_iterator();
}

}  // namespace

Host probe_host(const Places& places) {
    Host host;
    const std::optional<rlimit> of_workers = agent::descriptor_limit_of_programs();
    host.open_files = of_workers ? soft(*of_workers) : soft_limit(RLIMIT_NOFILE);
    host.locked_memory = soft_limit(RLIMIT_MEMLOCK);
    if (const auto tasks = cgroup::task_limit(places.root)) {
        host.tasks_most = tasks->most;
        host.tasks_used = tasks->used;
    }
    host.has_rdma = has_entries(places.root / "sys/class/infiniband");
    host.shared_memory = read_folder(places.root / "dev/shm");
    host.shared_memory.path = "/dev/shm";
    host.refused_calls = agent::refused_calls();
    return host;
}

Link probe_link(const Places& places, const std::string& interface) {
    Link link{interface};
    if (interface.empty()) {
        return link;
    }
    const fs::path folder = places.root / "sys/class/net" / interface;
    if (const auto carrier = read_number(folder / "carrier")) {
        link.carrier = *carrier != 0;
    }
    // Virtual interfaces report -1, or nothing.
    if (const auto speed = read_number(folder / "speed"); speed && *speed > 0) {
        link.megabits = static_cast<std::uint64_t>(*speed);
    }
    if (const auto changes = read_number(folder / "carrier_changes"); changes && *changes >= 0) {
        link.carrier_changes = static_cast<std::uint64_t>(*changes);
    }
    return link;
}

bool has_driver(const Places& places) {
    std::error_code none;
    return fs::exists(places.root / "dev/nvidiactl", none) ||
           fs::exists(places.root / "proc/driver/nvidia", none);
}

}  // namespace regroup::health
