// SPDX-License-Identifier: Apache-2.0
//
// The few declarations of NVML that are used here. Its interface is stable: a function whose
// arguments change gets another name.
#include "agent/health/nvml.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <dlfcn.h>

#include "rendezvous/base/printable.h"

namespace regroup::health {

namespace {

enum Code : int {
    kSuccess = 0,
    kNoPermission = 4,
    kNotFound = 6,
    kInsufficientSize = 7,
    kGpuIsLost = 15,
};

using Device = void*;

constexpr unsigned kRecoveryActionField = 230;
constexpr int kUncorrected = 1;
constexpr int kSinceDriverLoad = 0;
constexpr std::size_t kProcessesMax = 256;
constexpr unsigned kDevicesMax = 1024;
// The driver uses this value for "not available".
constexpr std::uint64_t kNotAvailable = UINT64_MAX;

struct FieldValue {
    unsigned field = 0;
    unsigned scope = 0;
    long long timestamp = 0;
    long long latency = 0;
    unsigned value_type = 0;
    int code = 0;
    union {
        double as_double;
        unsigned as_unsigned;
        unsigned long long as_long = 0;
    } value;
};
static_assert(sizeof(FieldValue) == 40);

struct ProcessInfo {
    unsigned pid = 0;
    unsigned long long used = 0;
    unsigned gpu_instance = 0;
    unsigned compute_instance = 0;
};
static_assert(sizeof(ProcessInfo) == 24);

struct MemoryInfo {
    unsigned version = 0;
    unsigned long long total = 0;
    unsigned long long reserved = 0;
    unsigned long long free = 0;
    unsigned long long used = 0;
};
static_assert(sizeof(MemoryInfo) == 40);
constexpr unsigned kMemoryInfoVersion = sizeof(MemoryInfo) | (2U << 24U);

struct PciInfo {
    std::array<char, 16> older_address{};
    unsigned domain = 0;
    unsigned bus = 0;
    unsigned device = 0;
    unsigned device_id = 0;
    unsigned subsystem_id = 0;
    std::array<char, 32> address{};
};
static_assert(sizeof(PciInfo) == 68);

/// "00000000:3B:00.0" in the kernel's form, "0000:3b:00.0".
std::string kernel_address(const char* text) {
    std::string address = text;
    std::transform(address.begin(), address.end(), address.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    return address.starts_with("0000") && address.find(':') == 8 ? address.substr(4) : address;
}

}  // namespace

struct Nvml::Functions {
    int (*init)() = nullptr;
    int (*shutdown)() = nullptr;
    const char* (*error_string)(int) = nullptr;
    int (*count)(unsigned*) = nullptr;
    int (*by_index)(unsigned, Device*) = nullptr;
    int (*by_address)(const char*, Device*) = nullptr;
    int (*pci_info)(Device, PciInfo*) = nullptr;
    int (*uuid)(Device, char*, unsigned) = nullptr;
    int (*field_values)(Device, int, FieldValue*) = nullptr;
    int (*remapped_rows)(Device, unsigned*, unsigned*, unsigned*, unsigned*) = nullptr;
    int (*ecc_errors)(Device, int, int, unsigned long long*) = nullptr;
    int (*clock_reasons)(Device, unsigned long long*) = nullptr;
    int (*processes)(Device, unsigned*, ProcessInfo*) = nullptr;
    int (*memory)(Device, MemoryInfo*) = nullptr;
};

Nvml::Nvml() : functions_(std::make_unique<Functions>()) {}

Nvml::~Nvml() {
    if (started_ && functions_->shutdown != nullptr) {
        functions_->shutdown();
    }
    if (library_ != nullptr) {
        ::dlclose(library_);
    }
}

std::string Nvml::error_text(int code) const {
    const char* text = functions_->error_string != nullptr ? functions_->error_string(code) : "";
    return (text == nullptr || *text == '\0' ? "NVML's error" : printable(text)) + " (" +
           std::to_string(code) + ")";
}

Result<std::unique_ptr<Nvml>> Nvml::open(const std::string& library) {
    std::unique_ptr<Nvml> nvml(new Nvml());
    nvml->library_ = ::dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (nvml->library_ == nullptr) {
        const char* why = ::dlerror();
        return Failure(Errc::invalid_argument, printable(why != nullptr ? why : library));
    }
    Functions& all = *nvml->functions_;
    const auto load = [&](auto& function, const char* name) {
        function =
            reinterpret_cast<std::decay_t<decltype(function)>>(::dlsym(nvml->library_, name));
    };
    load(all.init, "nvmlInit_v2");
    load(all.shutdown, "nvmlShutdown");
    load(all.error_string, "nvmlErrorString");
    load(all.count, "nvmlDeviceGetCount_v2");
    load(all.by_index, "nvmlDeviceGetHandleByIndex_v2");
    load(all.by_address, "nvmlDeviceGetHandleByPciBusId_v2");
    load(all.pci_info, "nvmlDeviceGetPciInfo_v3");
    load(all.uuid, "nvmlDeviceGetUUID");
    load(all.field_values, "nvmlDeviceGetFieldValues");
    load(all.remapped_rows, "nvmlDeviceGetRemappedRows");
    load(all.ecc_errors, "nvmlDeviceGetTotalEccErrors");
    load(all.clock_reasons, "nvmlDeviceGetCurrentClocksEventReasons");
    if (all.clock_reasons == nullptr) {
        load(all.clock_reasons, "nvmlDeviceGetCurrentClocksThrottleReasons");
    }
    load(all.processes, "nvmlDeviceGetComputeRunningProcesses_v3");
    load(all.memory, "nvmlDeviceGetMemoryInfo_v2");
    if (all.init == nullptr || all.by_address == nullptr) {
        return Failure(Errc::invalid_argument, library + " is too old");
    }
    if (const int code = all.init(); code != kSuccess) {
        return Failure(Errc::system, nvml->error_text(code));
    }
    nvml->started_ = true;
    return nvml;
}

std::vector<std::string> Nvml::addresses() const {
    std::vector<std::string> all;
    unsigned count = 0;
    if (functions_->count == nullptr || functions_->by_index == nullptr ||
        functions_->pci_info == nullptr || functions_->count(&count) != kSuccess) {
        return all;
    }
    for (unsigned index = 0; index < std::min(count, kDevicesMax); ++index) {
        Device device = nullptr;
        PciInfo info;
        if (functions_->by_index(index, &device) == kSuccess &&
            functions_->pci_info(device, &info) == kSuccess) {
            info.address.back() = '\0';
            all.push_back(kernel_address(info.address.data()));
        }
    }
    return all;
}

Gpu Nvml::look(const std::string& address) const {
    const Functions& call = *functions_;
    Gpu gpu;
    gpu.address = address;
    // Each call may be the one that finds out that the GPU is lost.
    const auto works = [&](int code) {
        if (code == kGpuIsLost) {
            gpu.state = Gpu::State::lost;
        }
        return code == kSuccess;
    };
    Device device = nullptr;
    if (const int code = call.by_address(address.c_str(), &device); !works(code)) {
        if (code != kGpuIsLost) {
            gpu.state = code == kNoPermission ? Gpu::State::denied
                        : code == kNotFound   ? Gpu::State::missing
                                              : Gpu::State::failed;
            gpu.error = error_text(code);
        }
        return gpu;
    }
    std::array<char, 96> uuid{};
    if (call.uuid != nullptr && works(call.uuid(device, uuid.data(), uuid.size() - 1))) {
        gpu.uuid = uuid.data();
    }
    FieldValue action;
    action.field = kRecoveryActionField;
    if (call.field_values != nullptr && works(call.field_values(device, 1, &action)) &&
        works(action.code)) {
        gpu.recovery_action = static_cast<int>(action.value.as_unsigned);
    }
    unsigned corrected = 0;
    unsigned uncorrected = 0;
    unsigned pending = 0;
    unsigned failed = 0;
    if (call.remapped_rows != nullptr &&
        works(call.remapped_rows(device, &corrected, &uncorrected, &pending, &failed))) {
        gpu.remap_pending = pending != 0;
        gpu.remap_failed = failed != 0;
    }
    unsigned long long number = 0;
    if (call.ecc_errors != nullptr &&
        works(call.ecc_errors(device, kUncorrected, kSinceDriverLoad, &number))) {
        gpu.uncorrected_errors = number;
    }
    if (call.clock_reasons != nullptr && works(call.clock_reasons(device, &number))) {
        gpu.clock_reasons = number;
    }
    MemoryInfo memory;
    memory.version = kMemoryInfoVersion;
    if (call.memory != nullptr && works(call.memory(device, &memory))) {
        gpu.memory_used = memory.used;
    }
    std::vector<ProcessInfo> processes(kProcessesMax);
    auto count = static_cast<unsigned>(processes.size());
    if (call.processes != nullptr) {
        const int code = call.processes(device, &count, processes.data());
        if (works(code)) {
            for (unsigned index = 0; index < std::min<std::size_t>(count, kProcessesMax); ++index) {
                const ProcessInfo& process = processes[index];
                gpu.processes.push_back(
                    {process.pid, process.used == kNotAvailable ? 0 : process.used});
            }
        }
    }
    return gpu;
}

}  // namespace regroup::health
