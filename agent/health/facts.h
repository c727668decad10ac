// SPDX-License-Identifier: Apache-2.0
//
// The findings of the probes on a node, as values.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace regroup::health {

struct GpuProcess {
    std::uint32_t pid = 0;     ///< As the driver knows it: not the number inside a container.
    std::uint64_t bytes = 0;   ///< Of the GPU's memory; 0 if the driver does not say.
    std::string command = {};  ///< Empty if not known.
};

/// A GPU that the kernel's driver has.
struct Gpu {
    enum class State : std::uint8_t {
        answers,
        lost,     ///< It has fallen off the bus.
        missing,  ///< NVML does not know it.
        denied,   ///< This process may not use it.
        failed,   ///< NVML reports `error`.
    };
    std::string address = {};  ///< On the PCI bus, "0000:3b:00.0".
    std::string uuid = {};     ///< "GPU-..."; empty if the driver does not report it.
    std::string model = {};    ///< "NVIDIA H100"; empty if not known.
    State state = State::answers;
    std::string error = {};
    int recovery_action = -1;  ///< NVML's field 230; -1: not known.
    bool remap_pending = false;
    bool remap_failed = false;
    std::uint64_t uncorrected_errors = 0;  ///< Of memory, since the driver was loaded.
    std::uint64_t clock_reasons = 0;       ///< NVML's bits for why its clocks are low.
    std::uint64_t memory_used = 0;         ///< Bytes, without what the driver reserves.
    std::vector<GpuProcess> processes = {};
};

/// An error that the driver wrote into the kernel's log.
struct Xid {
    std::string address = {};  ///< Of the GPU, "0000:3b:00", without the function.
    int number = 0;
    std::uint64_t at = 0;  ///< Microseconds since the machine started.
};

struct Driver {
    enum class State : std::uint8_t {
        absent,      ///< This machine has no NVIDIA driver, or it shows this process no GPU.
        answers,     ///< See `gpus`.
        no_library,  ///< NVML cannot be loaded: `error`.
        failed,      ///< NVML does not start: `error`.
        silent,      ///< It has not answered within `limit` seconds.
        crashed,     ///< The probe process ended unexpectedly: `error`.
    };
    State state = State::absent;
    std::string error = {};
    std::uint64_t limit = 0;
    std::vector<Gpu> gpus = {};  ///< In the order of the bus.
    std::vector<Xid> xids = {};
    /// When the newest record of that log was written, by the log's clock; 0: not known.
    std::uint64_t log_end = 0;
};

/// The part of a thorough probe that concerns one CPU.
struct CpuResult {
    int cpu = 0;
    std::uint64_t digest = 0;        ///< Of the product that it computed first.
    bool repeats = true;             ///< All its later products had the same digest.
    double products_per_second = 0;  ///< 0: not measured, because of a quota.
};

/// The answer of the probe process.
struct Probed {
    Driver driver = {};
    std::vector<CpuResult> cpus = {};
    double copied_per_second = 0;  ///< Bytes, by all CPUs together; 0: not measured.
};

struct Folder {
    std::string path = {};
    std::uint64_t free = 0;   ///< Bytes for this user.
    std::uint64_t total = 0;  ///< Bytes; 0: there is no such folder.
    bool silent = false;      ///< Its file system has not answered in time.
};

/// Limits and space.
struct Host {
    static constexpr std::uint64_t kUnlimited = UINT64_MAX;
    std::uint64_t open_files = kUnlimited;     ///< Soft limit of descriptors.
    std::uint64_t locked_memory = kUnlimited;  ///< Soft limit, bytes.
    std::uint64_t tasks_most = kUnlimited;     ///< Processes and threads of the cgroup.
    std::uint64_t tasks_used = 0;              ///< Those that are there.
    bool has_rdma = false;                     ///< There is an InfiniBand or RoCE device.
    /// System calls that a sandbox refuses, and that this process or its workers would make.
    std::vector<std::string> refused_calls = {};
    Folder shared_memory = {};
    std::optional<Folder> log_folder = {};  ///< Nothing if the output goes to no file.
};

/// The network interface that has the address of this node.
struct Link {
    std::string interface = {};  ///< Empty: not known, or loopback.
    std::optional<bool> carrier = {};
    std::optional<std::uint64_t> megabits = {};  ///< Of a second.
    std::optional<std::uint64_t> carrier_changes = {};
};

}  // namespace regroup::health
