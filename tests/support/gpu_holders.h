// SPDX-License-Identifier: Apache-2.0
//
// The processes that hold memory of GPUs, as the stand-in for NVML shows them: in the file that
// $STAND_IN_NVML names, with ".holders" behind it.
#pragma once

#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <string>
#include <sys/types.h>
#include <vector>

namespace regroup::testing {

/// Empty without a stand-in.
inline std::string holders_file() {
    const char* facts = std::getenv("STAND_IN_NVML");
    return facts != nullptr ? std::string(facts) + ".holders" : "";
}

/// The driver shows from now on that `pid` holds memory; with `keeper`, for as long as that process
/// lives. 0 for `pid`: nobody does.
inline void show_holder(const std::string& file, pid_t pid, pid_t keeper = 0) {
    std::ofstream part(file + ".part");
    if (pid != 0) {
        part << pid << " " << keeper << "\n";
    }
    part.close();
    std::filesystem::rename(file + ".part", file);
}

inline std::vector<pid_t> holders_in(const std::string& file) {
    std::vector<pid_t> holders;
    std::ifstream lines(file);
    for (std::string line; std::getline(lines, line);) {
        std::istringstream words(line);
        pid_t pid = 0;
        pid_t keeper = 0;
        words >> pid >> keeper;
        if (keeper == 0 || ::kill(keeper, 0) == 0) {
            holders.push_back(pid);
        }
    }
    return holders;
}

/// "4711 4712".
inline std::string holders_now() {
    std::string text;
    for (const pid_t pid : holders_in(holders_file())) {
        text += (text.empty() ? "" : " ") + std::to_string(pid);
    }
    return text;
}

}  // namespace regroup::testing
