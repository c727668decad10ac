// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <filesystem>
#include <functional>
#include <string_view>

#include "rendezvous/files/unique_fd.h"

namespace regroup::agent {

/// The log of the kernel, /dev/kmsg, if this process may read it; else one without records.
class KernelLog {
   public:
    /// `root`: the folder with dev.
    explicit KernelLog(const std::filesystem::path& root);

    /// Later reads begin with what the kernel writes from now on.
    void skip_to_end();
    /// Passes the next records to `take`, at most `most`, until it returns false.
    void read(int most, const std::function<bool(std::string_view record)>& take);

   private:
    UniqueFd log_;
};

/// True if our pids are those of the log and of drivers, not those of a container.
[[nodiscard]] bool has_pids_of_machine(const std::filesystem::path& root);

/// The first line of a record of /dev/kmsg, "3,1234,5678901,-;text", from its text on. Empty if
/// another than the kernel wrote it: its first number has the facility in the bits above the third.
/// Any user can make the kernel quote a text, so look for what the line begins with.
[[nodiscard]] std::string_view kernel_text(std::string_view record) noexcept;

}  // namespace regroup::agent
