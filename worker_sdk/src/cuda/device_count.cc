// SPDX-License-Identifier: Apache-2.0
#include "worker_sdk/src/cuda/device_count.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstddef>
#include <dlfcn.h>
#include <set>
#include <string_view>
#include <system_error>

namespace regroup::cuda {
namespace {

constexpr int kSuccess = 0;
constexpr int kMajor = 1000;

/// The functions of libnvidia-ml.so.1 that are needed, opened for the time of a scope.
class ManagementLibrary {
   public:
    explicit ManagementLibrary(const char* path) : library_(::dlopen(path, RTLD_NOW)) {
        ready_ = library_ != nullptr && call<int()>("nvmlInit_v2") == kSuccess;
    }
    ~ManagementLibrary() {
        if (ready_) {
            (void)call<int()>("nvmlShutdown");
        }
        if (library_ != nullptr) {
            ::dlclose(library_);
        }
    }
    ManagementLibrary(const ManagementLibrary&) = delete;
    ManagementLibrary& operator=(const ManagementLibrary&) = delete;

    [[nodiscard]] bool supports(int cuda_version) const {
        int supported = 0;
        return ready_ &&
               call<int(int*)>("nvmlSystemGetCudaDriverVersion_v2", &supported) == kSuccess &&
               supported / kMajor >= cuda_version / kMajor;
    }
    /// Of all GPUs; nothing if some cannot be told or are divided.
    [[nodiscard]] std::optional<std::vector<std::string>> uuids() const {
        unsigned count = 0;
        if (call<int(unsigned*)>("nvmlDeviceGetCount_v2", &count) != kSuccess) {
            return std::nullopt;
        }
        std::vector<std::string> found;
        for (unsigned index = 0; index < count; ++index) {
            void* device = nullptr;
            std::array<char, 96> uuid{};
            if (call<int(unsigned, void**)>("nvmlDeviceGetHandleByIndex_v2", index, &device) !=
                    kSuccess ||
                call<int(void*, char*, unsigned)>("nvmlDeviceGetUUID", device, uuid.data(),
                                                  static_cast<unsigned>(uuid.size())) != kSuccess ||
                is_divided(device)) {
                return std::nullopt;
            }
            found.emplace_back(uuid.data());
        }
        return found;
    }

   private:
    static constexpr int kNoFunction = -1;

    template <class Function, class... Arguments>
    [[nodiscard]] int call(const char* name, Arguments... arguments) const {
        auto* const function = reinterpret_cast<Function*>(::dlsym(library_, name));
        return function == nullptr ? kNoFunction : function(arguments...);
    }
    /// GPUs that cannot be divided answer with an error.
    [[nodiscard]] bool is_divided(void* device) const {
        unsigned current = 0;
        unsigned pending = 0;
        return call<int(void*, unsigned*, unsigned*)>("nvmlDeviceGetMigMode", device, &current,
                                                      &pending) == kSuccess &&
               current != 0;
    }

    void* library_;
    bool ready_ = false;
};

/// The GPU that an entry names; nothing if it names none, or several.
std::optional<std::size_t> find_gpu(std::string_view entry, const std::vector<std::string>& uuids) {
    std::size_t index = 0;
    const char* const end = entry.data() + entry.size();
    if (std::from_chars(entry.data(), end, index).ec == std::errc{}) {
        return index < uuids.size() ? std::optional(index) : std::nullopt;
    }
    std::optional<std::size_t> found;
    for (std::size_t i = 0; entry.starts_with("GPU-") && i < uuids.size(); ++i) {
        if (uuids[i].starts_with(entry)) {
            if (found) {
                return std::nullopt;
            }
            found = i;
        }
    }
    return found;
}

}  // namespace

std::optional<int> count_visible(const std::vector<std::string>& uuids,
                                 const std::optional<std::string>& visible) {
    if (!visible) {
        return static_cast<int>(uuids.size());
    }
    std::set<std::size_t> chosen;
    for (std::string_view rest = *visible; !rest.empty();) {
        std::string_view entry = rest.substr(0, rest.find(','));
        rest.remove_prefix(entry.size() == rest.size() ? rest.size() : entry.size() + 1);
        entry.remove_prefix(std::min(entry.find_first_not_of(' '), entry.size()));
        entry = entry.substr(0, entry.find(' '));
        if (entry.starts_with("MIG")) {
            return std::nullopt;
        }
        const std::optional<std::size_t> gpu = find_gpu(entry, uuids);
        if (!gpu) {
            break;
        }
        if (!chosen.insert(*gpu).second) {
            return 0;
        }
    }
    return static_cast<int>(chosen.size());
}

std::optional<int> count_without_driver(const char* library, int cuda_version,
                                        const std::optional<std::string>& visible) {
    const ManagementLibrary management(library);
    if (!management.supports(cuda_version)) {
        return std::nullopt;
    }
    const auto uuids = management.uuids();
    return uuids ? count_visible(*uuids, visible) : std::nullopt;
}

}  // namespace regroup::cuda
