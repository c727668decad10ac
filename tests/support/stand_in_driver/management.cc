// SPDX-License-Identifier: Apache-2.0
// A stand-in for libnvidia-ml.so.1: two GPUs, and a driver for CUDA 13.0.
#include <cstring>

namespace {

bool is_open = false;
constexpr int kUninitialised = 1;
constexpr int kNotSupported = 3;
const char* const kUuids[] = {"GPU-aaaaaaaa-0000", "GPU-bbbbbbbb-0000"};

}  // namespace

extern "C" {

int nvmlInit_v2() {
    is_open = true;
    return 0;
}

int nvmlShutdown() {
    is_open = false;
    return 0;
}

int nvmlSystemGetCudaDriverVersion_v2(int* version) {
    *version = 13000;
    return is_open ? 0 : kUninitialised;
}

int nvmlDeviceGetCount_v2(unsigned* count) {
    *count = 2;
    return is_open ? 0 : kUninitialised;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** device) {
    *device = const_cast<char*>(kUuids[index]);
    return is_open ? 0 : kUninitialised;
}

int nvmlDeviceGetUUID(void* device, char* uuid, unsigned bytes) {
    std::strncpy(uuid, static_cast<const char*>(device), bytes);
    return is_open ? 0 : kUninitialised;
}

int nvmlDeviceGetMigMode(void* /*device*/, unsigned* /*current*/, unsigned* /*pending*/) {
    return kNotSupported;
}
}
