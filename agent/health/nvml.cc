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

// The codes that its functions return.
constexpr int kSuccess = 0;
constexpr int kNoPermission = 4;
constexpr int kNotFound = 6;
constexpr int kInsufficientSize = 7;
constexpr int kGpuIsLost = 15;
constexpr int kNoFunction = -1;  ///< Ours: the library does not have it.

using Device = void*;

constexpr const char* kByAddress = "nvmlDeviceGetHandleByPciBusId_v2";
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

Nvml::~Nvml() {
    if (started_) {
        call("nvmlShutdown");
    }
    if (library_ != nullptr) {
        ::dlclose(library_);
    }
}

/// The result of a function of the library, or kNoFunction.
template <class... Arguments>
int Nvml::call(const char* name, Arguments... arguments) const {
    const auto function = reinterpret_cast<int (*)(Arguments...)>(::dlsym(library_, name));
    return function != nullptr ? function(arguments...) : kNoFunction;
}

std::string Nvml::error_text(int code) const {
    const auto text_of =
        reinterpret_cast<const char* (*)(int)>(::dlsym(library_, "nvmlErrorString"));
    const char* text = text_of != nullptr ? text_of(code) : "";
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
    if (::dlsym(nvml->library_, kByAddress) == nullptr) {
        return Failure(Errc::invalid_argument, library + " is too old");
    }
    const int code = nvml->call("nvmlInit_v2");
    if (code == kNoFunction) {
        return Failure(Errc::invalid_argument, library + " is too old");
    }
    if (code != kSuccess) {
        return Failure(Errc::system, nvml->error_text(code));
    }
    nvml->started_ = true;
    return nvml;
}

std::vector<std::string> Nvml::addresses() const {
    std::vector<std::string> all;
    unsigned count = 0;
    if (call("nvmlDeviceGetCount_v2", &count) != kSuccess) {
        return all;
    }
    for (unsigned index = 0; index < std::min(count, kDevicesMax); ++index) {
        Device device = nullptr;
        PciInfo info;
        if (call("nvmlDeviceGetHandleByIndex_v2", index, &device) == kSuccess &&
            call("nvmlDeviceGetPciInfo_v3", device, &info) == kSuccess) {
            info.address.back() = '\0';
            all.push_back(kernel_address(info.address.data()));
        }
    }
    return all;
}

Gpu Nvml::look(const std::string& address) const {
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
    if (const int code = call(kByAddress, address.c_str(), &device); !works(code)) {
        if (code != kGpuIsLost) {
            gpu.state = code == kNoPermission ? Gpu::State::denied
                        : code == kNotFound   ? Gpu::State::missing
                                              : Gpu::State::failed;
            gpu.error = error_text(code);
        }
        return gpu;
    }
    std::array<char, 96> uuid{};
    if (works(call("nvmlDeviceGetUUID", device, uuid.data(),
                   static_cast<unsigned>(uuid.size() - 1)))) {
        gpu.uuid = uuid.data();
    }
    FieldValue action;
    action.field = kRecoveryActionField;
    if (works(call("nvmlDeviceGetFieldValues", device, 1, &action)) && works(action.code)) {
        gpu.recovery_action = static_cast<int>(action.value.as_unsigned);
    }
    unsigned corrected = 0;
    unsigned uncorrected = 0;
    unsigned pending = 0;
    unsigned failed = 0;
    if (works(call("nvmlDeviceGetRemappedRows", device, &corrected, &uncorrected, &pending,
                   &failed))) {
        gpu.remap_pending = pending != 0;
        gpu.remap_failed = failed != 0;
    }
    unsigned long long number = 0;
    if (works(
            call("nvmlDeviceGetTotalEccErrors", device, kUncorrected, kSinceDriverLoad, &number))) {
        gpu.uncorrected_errors = number;
    }
    int reasons = call("nvmlDeviceGetCurrentClocksEventReasons", device, &number);
    if (reasons == kNoFunction) {
        reasons = call("nvmlDeviceGetCurrentClocksThrottleReasons", device, &number);
    }
    if (works(reasons)) {
        gpu.clock_reasons = number;
    }
    MemoryInfo memory;
    memory.version = kMemoryInfoVersion;
    if (works(call("nvmlDeviceGetMemoryInfo_v2", device, &memory))) {
        gpu.memory_used = memory.used;
    }
    static_cast<void>(works(read_processes(device, gpu.processes)));
    return gpu;
}

std::vector<GpuProcess> Nvml::processes(const std::string& address) const {
    std::vector<GpuProcess> found;
    Device device = nullptr;
    if (call(kByAddress, address.c_str(), &device) == kSuccess) {
        read_processes(device, found);
    }
    return found;
}

int Nvml::read_processes(void* device, std::vector<GpuProcess>& found) const {
    std::vector<ProcessInfo> processes(kProcessesMax);
    auto count = static_cast<unsigned>(processes.size());
    const int code =
        call("nvmlDeviceGetComputeRunningProcesses_v3", device, &count, processes.data());
    if (code == kSuccess) {
        for (unsigned index = 0; index < std::min<std::size_t>(count, kProcessesMax); ++index) {
            const ProcessInfo& process = processes[index];
            found.push_back({process.pid, process.used == kNotAvailable ? 0 : process.used});
        }
    }
    return code;
}

}  // namespace regroup::health
