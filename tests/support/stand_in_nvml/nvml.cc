// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvidia-ml.so.1. The file that STAND_IN_NVML names says what it answers, one
// fact a line: "init CODE", "hang" (a call that never returns), "crash", and for a GPU "ADDRESS
// FACT N", with the facts code, action, pending, remap_failed, errors, clocks, used and pid. It
// does not know GPUs without a line. The processes of gpu_holders.h, which may change at any time,
// hold memory of each GPU. For each answer that names one, the file with ".asked" behind its name
// grows by a byte.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <string>
#include <unistd.h>

#include "tests/support/gpu_holders.h"

namespace {

using Facts = std::map<std::string, unsigned long long>;

std::map<std::string, Facts>& gpus() {
    static std::map<std::string, Facts> all;
    return all;
}

constexpr int kNotSupported = 3;
constexpr int kNotFound = 6;

struct FieldValue {
    unsigned field;
    unsigned scope;
    long long timestamp;
    long long latency;
    unsigned value_type;
    int code;
    unsigned long long value;
};

struct ProcessInfo {
    unsigned pid;
    unsigned long long used;
    unsigned gpu_instance;
    unsigned compute_instance;
};

struct MemoryInfo {
    unsigned version;
    unsigned long long total;
    unsigned long long reserved;
    unsigned long long free;
    unsigned long long used;
};

Facts& facts(void* device) {
    return *static_cast<Facts*>(device);
}

}  // namespace

extern "C" {

int nvmlInit_v2() {
    const char* path = std::getenv("STAND_IN_NVML");
    gpus().clear();
    std::ifstream file(path != nullptr ? path : "");
    for (std::string line; std::getline(file, line);) {
        std::istringstream words(line);
        std::string first;
        std::string fact;
        unsigned long long number = 0;
        words >> first;
        if (first == "init" && words >> number) {
            return static_cast<int>(number);
        }
        if (first == "hang") {
            for (;;) {
                ::pause();
            }
        }
        if (first == "crash") {
            std::abort();
        }
        words >> fact >> number;
        gpus()[first][fact] = number;
    }
    return 0;
}

int nvmlShutdown() {
    return 0;
}

const char* nvmlErrorString(int code) {
    return code == 9 ? "Driver Not Loaded" : "Some Error";
}

int nvmlDeviceGetHandleByPciBusId_v2(const char* address, void** device) {
    const auto found = gpus().find(address);
    if (found == gpus().end()) {
        return kNotFound;
    }
    *device = &found->second;
    return static_cast<int>(found->second["code"]);
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
    std::snprintf(uuid, bytes, "GPU-%llu", facts(device)["uuid"]);
    return 0;
}

int nvmlDeviceGetFieldValues(void* device, int count, FieldValue* values) {
    for (int index = 0; index < count; ++index) {
        const bool known = values[index].field == 230 && facts(device).contains("action");
        values[index].code = known ? 0 : kNotSupported;
        values[index].value = known ? facts(device)["action"] : 0;
    }
    return 0;
}

int nvmlDeviceGetRemappedRows(void* device, unsigned* corrected, unsigned* uncorrected,
                              unsigned* pending, unsigned* failed) {
    *corrected = *uncorrected = 0;
    *pending = static_cast<unsigned>(facts(device)["pending"]);
    *failed = static_cast<unsigned>(facts(device)["remap_failed"]);
    return 0;
}

int nvmlDeviceGetTotalEccErrors(void* device, int type, int counter, unsigned long long* count) {
    *count = type == 1 && counter == 0 ? facts(device)["errors"] : 77777;
    return 0;
}

int nvmlDeviceGetCurrentClocksEventReasons(void* device, unsigned long long* reasons) {
    *reasons = facts(device)["clocks"];
    return 0;
}

int nvmlDeviceGetMemoryInfo_v2(void* device, MemoryInfo* info) {
    if (info->version != (sizeof(MemoryInfo) | (2U << 24U))) {
        return 25;
    }
    info->used = facts(device)["used"];
    return 0;
}

int nvmlDeviceGetComputeRunningProcesses_v3(void* device, unsigned* count, ProcessInfo* processes) {
    const unsigned room = *count;
    *count = 0;
    const auto show = [&](unsigned pid) {
        if (*count < room) {
            processes[(*count)++] = {pid, facts(device)["used"], 0, 0};
        }
    };
    if (facts(device).contains("pid")) {
        show(static_cast<unsigned>(facts(device)["pid"]));
    }
    const std::string file = regroup::testing::holders_file();
    for (const pid_t pid : regroup::testing::holders_in(file)) {
        show(static_cast<unsigned>(pid));
        std::ofstream(file + ".asked", std::ios::app) << '.';
    }
    return 0;
}
}
