// SPDX-License-Identifier: Apache-2.0
#include "rendezvous/security/secret_file.h"

#include <cerrno>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

#include "rendezvous/files/own_file.h"

namespace regroup::security {
namespace {

/// Without the line's end. Blanks belong to the secret.
std::string_view first_line(std::string_view text) {
    const std::string_view line = text.substr(0, text.find('\n'));
    return line.substr(0, line.size() - (line.ends_with('\r') ? 1 : 0));
}

}  // namespace

Result<std::string> read_secret_line(const std::string& path, const std::string& what,
                                     std::size_t bytes_max) {
    const std::string name = what + " " + path;
    const auto refuse = [&](const std::string& why) {
        return Failure(Errc::invalid_argument, name + " " + why);
    };
    const Result<UniqueFd> file = files::open_own(path, O_RDONLY);
    if (!file) {
        return Failure(file.error().code, "cannot read " + name + ": " + file.error().detail);
    }
    struct stat info{};
    if (::fstat(file->get(), &info) != 0) {
        return system_failure("cannot read " + name, errno);
    }
    if (!S_ISREG(info.st_mode)) {
        return refuse("is no regular file");
    }
    if (info.st_uid != ::geteuid() && info.st_uid != 0) {
        return refuse("belongs to another user, who may know what it holds");
    }
    // Kubernetes mounts secrets as root and 0440 to the group of the pod.
    const mode_t others = info.st_uid == 0 ? S_IRWXO : S_IRWXG | S_IRWXO;
    if ((info.st_mode & others) != 0) {
        return refuse("may be read by other users; run: chmod 600 " + path);
    }
    // With "\r", and with a byte more that shows that the line is too long.
    std::string text(bytes_max + 2, '\0');
    const ssize_t bytes = ::read(file->get(), text.data(), text.size());
    if (bytes < 0) {
        return system_failure("cannot read " + name, errno);
    }
    text.resize(static_cast<std::size_t>(bytes));
    const std::string line(first_line(text));
    if (line.empty()) {
        return refuse("has an empty first line");
    }
    if (line.size() > bytes_max) {
        return refuse("has a first line of more than " + std::to_string(bytes_max) + " bytes");
    }
    return line;
}

}  // namespace regroup::security
