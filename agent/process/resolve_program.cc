// SPDX-License-Identifier: Apache-2.0
#include "agent/process/resolve_program.h"

#include <unistd.h>

#include <filesystem>
#include <sstream>

namespace regroup::agent {

namespace {

namespace fs = std::filesystem;

bool is_executable_file(const fs::path& path) {
    std::error_code error;
    return fs::is_regular_file(path, error) && ::access(path.c_str(), X_OK) == 0;
}

Failure bad(const std::string& sentence) { return Failure(Errc::invalid_argument, sentence); }

}  // namespace

Result<std::string> resolve_program(const std::string& program, const std::string& path_list) {
    std::error_code error;
    if (program.find('/') != std::string::npos) {
        if (!fs::exists(program, error)) {
            return bad("program " + program + " does not exist");
        }
        if (fs::is_directory(program, error)) {
            return bad("program " + program + " is a folder");
        }
        if (!is_executable_file(program)) {
            return bad("program " + program + " is not executable (chmod +x " + program + ")");
        }
        return fs::absolute(program, error).string();
    }
    std::istringstream folders(path_list);
    for (std::string folder; std::getline(folders, folder, ':');) {
        const fs::path candidate = fs::path(folder.empty() ? "." : folder) / program;
        if (is_executable_file(candidate)) {
            return fs::absolute(candidate, error).string();
        }
    }
    std::string hint;
    if (fs::exists(program, error)) {
        hint = "; for the one in this folder write ./" + program;
    }
    return bad("program " + program + " was not found on PATH" + hint);
}

}  // namespace regroup::agent
