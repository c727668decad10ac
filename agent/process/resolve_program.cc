// SPDX-License-Identifier: Apache-2.0
#include "agent/process/resolve_program.h"

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <fstream>
#include <optional>
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

// Nothing if the file is no script that begins with #!.
std::optional<std::string> first_line_after_mark(const std::string& path) {
    constexpr std::size_t kKernelReads = 256;
    std::string head(kKernelReads, '\0');
    std::ifstream file(path, std::ios::binary);
    file.read(head.data(), static_cast<std::streamsize>(head.size()));
    head.resize(static_cast<std::size_t>(std::max<std::streamsize>(file.gcount(), 0)));
    if (!head.starts_with("#!")) {
        return std::nullopt;
    }
    return head.substr(2, head.find('\n') - 2);
}

/// The interpreter as the kernel finds it in such a line.
std::string interpreter_in(const std::string& line) {
    constexpr const char* kBlanks = " \t";
    const std::size_t begin = std::min(line.find_first_not_of(kBlanks), line.size());
    return line.substr(begin, line.find_first_of(kBlanks, begin) - begin);
}

/// A fault of the script at `path` that it has on every node: without an interpreter it cannot
/// start. Empty: none was found.
std::string fault_of_script(const std::string& path) {
    const std::optional<std::string> line = first_line_after_mark(path);
    if (!line) {
        return "";
    }
    const std::string interpreter = interpreter_in(*line);
    const bool through_env =
        std::filesystem::path(interpreter).filename() == "env" && line->ends_with('\r');
    return through_env || ::access(interpreter.c_str(), F_OK) != 0 ? missing_interpreter(path) : "";
}

Result<std::string> absolute_script_or_program(const std::string& path) {
    if (const std::string fault = fault_of_script(path); !fault.empty()) {
        return invalid_argument("cannot run '" + path + "': " + fault);
    }
    return absolute(path);
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
    return absolute_script_or_program(path);
}

}  // namespace

std::string missing_interpreter(const std::string& path) {
    const std::optional<std::string> line = first_line_after_mark(path);
    if (!line) {
        return "the loader that it needs does not exist: it was built for another system";
    }
    if (line->ends_with('\r')) {
        return "its lines end with CR LF, as on Windows, so that its first line names an "
               "interpreter that does not exist ('" +
               line->substr(0, line->size() - 1) + "\\r'); convert it: sed -i 's/\\r$//' '" + path +
               "'";
    }
    return "its first line names the interpreter '" + interpreter_in(*line) +
           "', which does not exist";
}

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
            return absolute_script_or_program(path);
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
