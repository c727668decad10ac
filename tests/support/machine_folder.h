// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <fstream>
#include <string>
#include <system_error>

#include "tests/support/temporary_directory.h"

namespace regroup::testing {

/// A folder that looks like the root of a machine to the probes of health, and the file that tells
/// the stand-in for NVML what to answer.
class MachineFolder {
   public:
    [[nodiscard]] std::filesystem::path root() const { return folder_ / "root"; }
    [[nodiscard]] std::string nvml_facts() const { return folder_.path() + "/nvml"; }
    /// See show_holder().
    [[nodiscard]] std::string holders() const { return nvml_facts() + ".holders"; }
    /// How often the stand-in has named a holder.
    [[nodiscard]] std::size_t asked() const {
        std::error_code none;
        const auto bytes = std::filesystem::file_size(holders() + ".asked", none);
        return none ? 0 : static_cast<std::size_t>(bytes);
    }

    MachineFolder() { std::filesystem::create_directories(root() / "dev"); }

    void write(const std::string& file, const std::string& text) const {
        folder_.write("root/" + file, text);
    }
    /// A GPU of the kernel's driver, with its device file.
    void add_gpu(const std::string& address, int minor) const {
        write("dev/nvidiactl", "");
        write("dev/nvidia" + std::to_string(minor), "");
        write("proc/driver/nvidia/gpus/" + address + "/information",
              "Model: \t\t NVIDIA H100\nDevice Minor: \t " + std::to_string(minor) + "\n");
    }
    /// `facts`: see tests/support/stand_in_nvml.
    void tell_nvml(const std::string& facts) const { std::ofstream(nvml_facts()) << facts; }

   private:
    TemporaryDirectory folder_;
};

}  // namespace regroup::testing
