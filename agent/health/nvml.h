// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "agent/health/facts.h"
#include "rendezvous/base/result.h"

namespace regroup::health {

/// NVIDIA's management library, opened at run time. A call may take as long as the driver pleases,
/// so a process that must not wait uses another process for it. One thread.
class Nvml {
   public:
    /// Errors: invalid_argument, if `library` cannot be loaded; system, if the driver does not
    /// work.
    static Result<std::unique_ptr<Nvml>> open(const std::string& library);
    ~Nvml();
    Nvml(const Nvml&) = delete;
    Nvml& operator=(const Nvml&) = delete;

    /// The addresses of all GPUs that the library knows, as far as it says.
    [[nodiscard]] std::vector<std::string> addresses() const;
    /// The library's answers about the GPU with that address on the PCI bus. Without names of
    /// processes.
    [[nodiscard]] Gpu look(const std::string& address) const;
    /// The processes that compute on that GPU. Without names.
    [[nodiscard]] std::vector<GpuProcess> processes(const std::string& address) const;

   private:
    Nvml() = default;
    template <class... Arguments>
    int call(const char* name, Arguments... arguments) const;
    [[nodiscard]] std::string error_text(int code) const;
    /// Returns the library's code.
    int read_processes(void* device, std::vector<GpuProcess>& found) const;

    void* library_ = nullptr;
    bool started_ = false;
};

}  // namespace regroup::health
