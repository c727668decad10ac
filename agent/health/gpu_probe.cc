// SPDX-License-Identifier: Apache-2.0
#include "agent/health/gpu_probe.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <string>
#include <system_error>
#include <unistd.h>

#include "agent/health/nvml.h"
#include "agent/process/kernel_log.h"
#include "agent/process/proc_files.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/text.h"

namespace regroup::health {

namespace {

namespace fs = std::filesystem;

constexpr int kRecordsMax = 20000;
constexpr std::size_t kXidsMax = 1000;

/// The GPUs of the kernel's driver in the order of the bus. The parts of an address have a fixed
/// width, except for a long domain.
std::vector<std::string> addresses_in_proc(const Places& places) {
    std::vector<std::string> all;
    std::error_code none;
    for (const auto& entry :
         fs::directory_iterator(places.root / "proc/driver/nvidia/gpus", none)) {
        all.push_back(entry.path().filename());
    }
    std::sort(all.begin(), all.end(), [](const std::string& left, const std::string& right) {
        return std::pair(left.size(), left) < std::pair(right.size(), right);
    });
    return all;
}

/// The words of the kernel's driver about a GPU: "3" for `name` in the line "Device Minor:  3".
std::string told_of(const Places& places, const std::string& address, std::string_view name) {
    std::ifstream file(places.root / "proc/driver/nvidia/gpus" / address / "information");
    for (std::string line; std::getline(file, line);) {
        if (line.starts_with(name)) {
            line.erase(0, name.size());
            return line.substr(std::min(line.find_first_not_of(" \t"), line.size()));
        }
    }
    return "";
}

/// Asks the kernel without opening the device. A cgroup of a batch system may forbid it.
bool may_open(const fs::path& device) {
    return ::access(device.c_str(), R_OK | W_OK) == 0;
}

/// A container or a job of a batch system may see all GPUs in /proc, and may open its own ones
/// only. The administrator may have taken a GPU out of use.
bool is_withheld(const Places& places, const std::string& address) {
    std::error_code none;
    const std::string minor = told_of(places, address, "Device Minor:");
    return told_of(places, address, "GPU Excluded:") == "Yes" ||
           (!minor.empty() && fs::exists(places.root / "dev/nvidiactl", none) &&
            !may_open(places.root / ("dev/nvidia" + minor)));
}

/// "3,1234,5678901,-;text": the third number is the time. 0 if there is none.
std::uint64_t time_of(std::string_view record) {
    std::string_view times = record.substr(0, record.find(';'));
    for (int skipped = 0; skipped < 2; ++skipped) {
        times.remove_prefix(std::min(times.find(','), times.size() - 1) + 1);
    }
    std::uint64_t time = 0;
    std::from_chars(times.data(), times.data() + times.size(), time);
    return time;
}

void read_log(const Places& places, Driver& driver) {
    agent::KernelLog(places.root).read(kRecordsMax, [&driver](std::string_view record) {
        // The kernel gives one record at a time; a file in a test gives all of them.
        for (const std::string_view line : split(record, '\n')) {
            if (auto xid = parse_xid(line)) {
                driver.xids.push_back(*std::move(xid));
            }
            // The text of a record may go on in lines that begin with a blank.
            if (!line.empty() && line.front() != ' ') {
                driver.log_end = std::max(driver.log_end, time_of(line));
            }
        }
        return driver.xids.size() < kXidsMax;
    });
}

}  // namespace

std::vector<std::string> gpu_addresses(const Places& places, const Nvml& nvml) {
    std::vector<std::string> addresses = addresses_in_proc(places);
    return addresses.empty() ? nvml.addresses() : addresses;
}

std::optional<Xid> parse_xid(std::string_view record) {
    constexpr std::string_view kHead = "NVRM: Xid (PCI:";
    std::string_view text = agent::kernel_text(record);
    if (!text.starts_with(kHead)) {
        return std::nullopt;
    }
    Xid xid;
    xid.at = time_of(record);
    text.remove_prefix(kHead.size());
    const std::size_t end = text.find("): ");
    if (end == std::string_view::npos) {
        return std::nullopt;
    }
    xid.address = text.substr(0, end);
    text.remove_prefix(end + 3);
    const auto [stop, error] = std::from_chars(text.data(), text.data() + text.size(), xid.number);
    return error == std::errc() ? std::optional(std::move(xid)) : std::nullopt;
}

Driver probe_driver(const Places& places) {
    Driver driver;
    const Result<std::unique_ptr<Nvml>> nvml = Nvml::open(places.nvml);
    if (!nvml) {
        const bool is_library = nvml.error().code == Errc::invalid_argument;
        driver.error = nvml.error().detail;
        // A container without GPUs may see the files of the driver, and have its library.
        driver.state = !may_open(places.root / "dev/nvidiactl") ? Driver::State::absent
                       : is_library                             ? Driver::State::no_library
                                                                : Driver::State::failed;
        return driver;
    }
    driver.state = Driver::State::answers;
    const bool named = agent::has_pids_of_machine(places.root);  // As the driver's are.
    for (const std::string& address : gpu_addresses(places, **nvml)) {
        Gpu gpu = (*nvml)->look(address);
        gpu.model = told_of(places, address, "Model:");
        if (is_withheld(places, address)) {
            gpu.state = Gpu::State::denied;
        }
        for (GpuProcess& process : gpu.processes) {
            const auto entry =
                named ? agent::read_process(static_cast<pid_t>(process.pid)) : std::nullopt;
            process.command = entry ? printable(entry->command) : "";
        }
        driver.gpus.push_back(std::move(gpu));
    }
    read_log(places, driver);
    return driver;
}

}  // namespace regroup::health
