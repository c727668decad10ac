// SPDX-License-Identifier: Apache-2.0
#include "agent/process/resolve_program.h"

#include <cerrno>
#include <filesystem>
#include <sstream>
#include <sys/stat.h>
#include <unistd.h>

namespace regroup::agent {
namespace {

enum class Kind { missing, folder, not_executable, executable };

Kind kind_of(const std::string& path) {
    struct stat status{};
    if (::stat(path.c_str(), &status) < 0) {
        return Kind::missing;
    }
    if (S_ISDIR(status.st_mode)) {
        return Kind::folder;
    }
    const bool executable = S_ISREG(status.st_mode) && ::access(path.c_str(), X_OK) == 0;
    return executable ? Kind::executable : Kind::not_executable;
}

Result<std::string> absolute(const std::string& path) {
    std::error_code error;
    const auto whole = std::filesystem::absolute(path, error);
    if (error) {
        return system_failure("find the current folder", error.value());
    }
    return whole.lexically_normal().string();
}

Failure not_executable(const std::string& path) {
    return invalid_argument("'" + path + "' is not executable; if it is a program, chmod +x " +
                            path);
}

Result<std::string> resolve_path(const std::string& path) {
    switch (kind_of(path)) {
        case Kind::missing:
            return invalid_argument(system_failure("cannot run '" + path + "'", errno).detail);
        case Kind::folder:
            return invalid_argument("cannot run '" + path + "': it is a folder");
        case Kind::not_executable:
            return not_executable(path);
        case Kind::executable:
            break;
    }
    return absolute(path);
}

}  // namespace

Result<std::string> resolve_program(const std::string& name, const std::string& search_path) {
    if (name.empty()) {
        return invalid_argument("the name of the program is empty");
    }
    if (name.find('/') != std::string::npos) {
        return resolve_path(name);
    }
    std::string refused;  // A file that cannot be run; reported if no other file is found.
    // A trailing colon is an empty entry, which getline would not see.
    std::istringstream folders(search_path + (search_path.ends_with(':') ? ":" : ""));
    for (std::string folder; std::getline(folders, folder, ':');) {
        const std::string path = (folder.empty() ? "." : folder) + "/" + name;
        const Kind kind = kind_of(path);
        if (kind == Kind::executable) {
            return absolute(path);
        }
        if (kind == Kind::not_executable && refused.empty()) {
            refused = path;
        }
    }
    if (!refused.empty()) {
        return not_executable(refused);
    }
    const Kind here = kind_of("./" + name);
    const bool is_file = here == Kind::executable || here == Kind::not_executable;
    return invalid_argument("program '" + name + "' was not found on PATH" +
                            (is_file ? "; did you mean ./" + name + "?" : ""));
}

}  // namespace regroup::agent
