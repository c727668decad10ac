// SPDX-License-Identifier: Apache-2.0
#include "agent/health/findings.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <map>
#include <utility>

#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::health {

namespace {

constexpr std::uint64_t kMiB = std::uint64_t{1} << 20U;
constexpr std::uint64_t kGiB = std::uint64_t{1} << 30U;

// A worker may need so many descriptors, and so many more for each rank of the job.
constexpr std::uint64_t kOpenFiles = 256;
constexpr std::uint64_t kOpenFilesOfRank = 4;
// NCCL and loaders of data take about so much for each worker.
constexpr std::uint64_t kSharedMemoryOfWorker = 32 * kMiB;
// A worker that loads data has so many processes and threads.
constexpr std::uint64_t kTasksOfWorker = 64;
constexpr std::uint64_t kDiskSpace = 256 * kMiB;
constexpr std::uint64_t kMegabits = 1000;
// More than a message takes to arrive.
constexpr Duration kClockDifference = std::chrono::seconds(2);
// A CPU that computes at less than this part of the usual speed is slow.
constexpr double kSlowPart = 0.5;

struct Row {
    std::string_view name;
    bool refuses;
};

constexpr std::array<Row, kChecks> kRows{{
    {"gpu-driver", true},
    {"gpu-library", false},
    {"probe", false},
    {"gpu-lost", true},
    {"gpu-missing", true},
    {"gpu-error", true},
    {"gpu-count", true},
    {"gpu-recovery", true},
    {"gpu-remap-failed", true},
    {"gpu-remap-pending", false},
    {"gpu-memory-errors", false},
    {"gpu-clocks", false},
    {"gpu-xid-fatal", true},
    {"gpu-xid", false},
    {"gpu-memory-in-use", false},
    {"open-files", false},
    {"locked-memory", false},
    {"tasks", false},
    {"shared-memory", false},
    {"system-calls", false},
    {"disk-space", false},
    {"link-carrier", false},
    {"link-speed", false},
    {"link-unstable", false},
    {"clock", false},
    {"cpu-result", true},
    {"cpu-speed", false},
}};

const Row& row_of(Check check) noexcept {
    return kRows.at(static_cast<std::size_t>(check));
}

}  // namespace

std::string_view to_string(Check check) noexcept {
    return row_of(check).name;
}

bool refuses(Check check) noexcept {
    return row_of(check).refuses;
}

std::string bytes_text(std::uint64_t bytes) {
    const bool large = bytes >= kGiB;
    const std::uint64_t unit = large ? kGiB : kMiB;
    const std::uint64_t tenths = bytes / (unit / 10);
    std::string text = std::to_string(tenths / 10);
    if (tenths % 10 != 0 && tenths < 100) {
        text += "." + std::to_string(tenths % 10);
    }
    return text + (large ? " GiB" : " MiB");
}

std::vector<Finding> judge_host(const Host& host, const Needs& needs) {
    std::vector<Finding> findings;
    const std::uint64_t files = kOpenFiles + kOpenFilesOfRank * needs.ranks;
    if (host.open_files < files) {
        findings.push_back(
            {Check::open_files, "the limit of open files is " + std::to_string(host.open_files) +
                                    ", and a worker of " + std::to_string(needs.ranks) +
                                    " ranks may need " + std::to_string(files) +
                                    "; raise it (ulimit -n)"});
    }
    if (host.has_rdma && host.locked_memory < kGiB) {
        findings.push_back({Check::locked_memory,
                            "the limit of locked memory is " + bytes_text(host.locked_memory) +
                                ", and InfiniBand needs more; raise it (ulimit -l unlimited)"});
    }
    const std::uint64_t tasks = kTasksOfWorker * needs.workers;
    // Its own workers may be among those that are there.
    const std::uint64_t used = needs.has_run ? 0 : std::min(host.tasks_used, host.tasks_most);
    if (host.tasks_most - used < tasks) {
        findings.push_back(
            {Check::tasks,
             "the cgroup of this process may have " + std::to_string(host.tasks_most) +
                 " processes and threads (pids.max) and has " + std::to_string(host.tasks_used) +
                 ", and " + counted(needs.workers, "worker") + " may need " +
                 std::to_string(tasks) +
                 "; raise it (docker run --pids-limit, systemd's TasksMax=)"});
    }
    const std::uint64_t shared = kSharedMemoryOfWorker * needs.workers;
    if (host.shared_memory.free < shared) {
        const Folder& folder = host.shared_memory;
        findings.push_back({Check::shared_memory,
                            folder.path +
                                (folder.total == 0 ? " is missing"
                                                   : " has " + bytes_text(folder.free) +
                                                         " free of " + bytes_text(folder.total)) +
                                ", and " + std::to_string(needs.workers) + " workers may need " +
                                bytes_text(shared) +
                                "; enlarge it (docker run --shm-size), or empty it"});
    }
    if (!host.refused_calls.empty()) {
        findings.push_back(
            {Check::system_calls,
             "a sandbox refuses system calls (" + joined(host.refused_calls, ", ") +
                 "), so that ends are seen later or features are missing; update the container's "
                 "runtime (Docker 20.10.10, runc 1.0, libseccomp 2.5), or allow them in its "
                 "seccomp profile"});
    }
    if (host.log_folder && host.log_folder->silent) {
        findings.push_back(
            {Check::disk_space, "the file system of --log-dir " + host.log_folder->path +
                                    " does not answer, so that its space is not checked; look at "
                                    "the server that it is on"});
    }
    if (host.log_folder && host.log_folder->total > 0 && host.log_folder->free < kDiskSpace) {
        findings.push_back({Check::disk_space, "the disk of --log-dir " + host.log_folder->path +
                                                   " has only " +
                                                   bytes_text(host.log_folder->free) +
                                                   " free; make room, or give another --log-dir"});
    }
    return findings;
}

std::vector<Finding> judge_clock(Duration ahead) {
    if (std::chrono::abs(ahead) < kClockDifference) {
        return {};
    }
    return {{Check::clock, "the clock of this node is " + format_duration(std::chrono::abs(ahead)) +
                               (ahead > Duration::zero() ? " ahead of" : " behind") +
                               " the daemon's, so that times in logs and events do not match; "
                               "synchronize it (chronyd, systemd-timesyncd)"}};
}

std::vector<Finding> judge_link(const Link& link, const Link& first) {
    std::vector<Finding> findings;
    if (link.interface.empty()) {
        return findings;
    }
    const std::string name = "the network interface " + link.interface;
    if (link.carrier == false) {
        findings.push_back(
            {Check::link_carrier, name + " has no carrier; look at the cable and the switch"});
    } else if (link.megabits && *link.megabits > 0 && *link.megabits < kMegabits) {
        findings.push_back({Check::link_speed, name + " runs at " + std::to_string(*link.megabits) +
                                                   " Mbit/s; look at the cable and the switch"});
    }
    if (link.interface == first.interface && link.carrier_changes && first.carrier_changes &&
        *link.carrier_changes > *first.carrier_changes) {
        const std::uint64_t changes = *link.carrier_changes - *first.carrier_changes;
        findings.push_back({Check::link_unstable,
                            name + " has lost or found its carrier " + std::to_string(changes) +
                                " times since this launcher started; look at the cable and the "
                                "switch"});
    }
    return findings;
}

// The CPUs are compared with each other: a CPU that computes wrongly does so alone.
std::vector<Finding> judge_cpus(const std::vector<CpuResult>& cpus) {
    std::vector<Finding> findings;
    std::map<std::uint64_t, std::size_t> votes;
    std::vector<double> speeds;
    for (const CpuResult& result : cpus) {
        ++votes[result.digest];
        speeds.push_back(result.products_per_second);
    }
    if (cpus.empty()) {
        return findings;
    }
    const auto most =
        std::max_element(votes.begin(), votes.end(),
                         [](const auto& a, const auto& b) { return a.second < b.second; });
    const auto middle = speeds.begin() + static_cast<std::ptrdiff_t>(speeds.size() / 2);
    std::nth_element(speeds.begin(), middle, speeds.end());
    for (const CpuResult& result : cpus) {
        const std::string name = "CPU " + std::to_string(result.cpu);
        if (!result.repeats) {
            findings.push_back(
                {Check::cpu_result, name + " does not compute the same product twice; take this "
                                           "machine out of service"});
        } else if (result.digest != most->first) {
            findings.push_back({Check::cpu_result,
                                name + " computes another product than the other CPUs; take this "
                                       "machine out of service"});
        } else if (result.products_per_second < kSlowPart * *middle) {
            const int part = static_cast<int>(100 * result.products_per_second / *middle);
            findings.push_back(
                {Check::cpu_speed, name + " computes at " + std::to_string(part) +
                                       " % of the usual speed; look at other programs, and at the "
                                       "cooling"});
        }
    }
    return findings;
}

std::string fault(const std::vector<Finding>& findings) {
    const Finding* first = nullptr;
    std::size_t more = 0;
    for (const Finding& finding : findings) {
        if (finding.refuses()) {
            more += first == nullptr ? 0U : 1U;
            first = first == nullptr ? &finding : first;
        }
    }
    if (first == nullptr) {
        return "";
    }
    return first->text + (more == 0 ? "" : " (and " + std::to_string(more) + " more)");
}

}  // namespace regroup::health
