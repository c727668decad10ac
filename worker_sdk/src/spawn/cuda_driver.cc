// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/spawn/cuda_driver.h"

#include <dlfcn.h>

namespace regroup::spawning {

bool has_initialised_cuda() noexcept {
    void* const driver = ::dlopen("libcuda.so.1", RTLD_LAZY | RTLD_NOLOAD);
    if (driver == nullptr) {
        return false;
    }
    // Before cuInit, and in a fork, this function fails with CUDA_ERROR_NOT_INITIALIZED.
    auto* const get_count = reinterpret_cast<int (*)(int*)>(::dlsym(driver, "cuDeviceGetCount"));
    int count = 0;
    const bool is_initialised = get_count != nullptr && get_count(&count) == 0;
    ::dlclose(driver);
    return is_initialised;
}

}  // namespace regroup::spawning
