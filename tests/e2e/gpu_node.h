// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <filesystem>
#include <memory>
#include <unistd.h>

#include "tests/e2e/end_to_end.h"
#include "tests/support/machine_folder.h"

namespace regroup::testing {

/// Nodes with two GPUs: by a mount over /proc/driver and a stand-in for NVML.
class GpuNode : public EndToEnd {
   protected:
    void SetUp() override {
        Program trial({gpu_words({"/bin/true"}), {}, folder()});
        if (::geteuid() != 0 || trial.wait() != 0) {
            GTEST_SKIP() << "a mount over /proc/driver needs root: " << trial.output();
        }
        tell_healthy();
    }

    /// A shell gives the program behind it the driver.
    static Words gpu_words(const Words& command) {
        const std::string script =
            "mount -t tmpfs none /proc/driver && "
            "mkdir -p /proc/driver/nvidia/gpus/0000:3b:00.0 "
            "/proc/driver/nvidia/gpus/0000:5e:00.0 && "
            "exec \"$@\"";
        return Words{"/usr/bin/unshare", "-m", "/bin/sh", "-c", script, "sh"} + command;
    }
    void tell_healthy() const {
        machine_.tell_nvml("0000:3b:00.0 action 0\n0000:5e:00.0 action 0\n");
    }
    /// A program on a node with GPUs.
    [[nodiscard]] std::unique_ptr<Program> with_gpus(const Words& command,
                                                     const Words& environment = {}) const {
        return std::make_unique<Program>(
            ProgramSpec{gpu_words(command),
                        Words{"PROBE_DIR=" + folder(), "STAND_IN_NVML=" + machine_.nvml_facts(),
                              "LD_LIBRARY_PATH=" STAND_IN_NVML_FOLDER} +
                            environment,
                        folder()});
    }
    [[nodiscard]] std::unique_ptr<Program> run_with_gpus(const Words& flags, const Words& steps,
                                                         const Words& environment = {}) const {
        return with_gpus(Words{regroup_program(), "run"} + flags + Words{probe_program()} + steps,
                         environment);
    }

    MachineFolder machine_;
};

}  // namespace regroup::testing
