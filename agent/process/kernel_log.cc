// SPDX-License-Identifier: Apache-2.0
#include "agent/process/kernel_log.h"

#include <array>
#include <cerrno>
#include <charconv>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

namespace regroup::agent {

namespace fs = std::filesystem;

KernelLog::KernelLog(const fs::path& root)
    : log_(::open((root / "dev/kmsg").c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC)) {}

void KernelLog::skip_to_end() {
    if (log_ && ::lseek(log_.get(), 0, SEEK_END) < 0) {
        log_.reset();
    }
}

void KernelLog::read(int most, const std::function<bool(std::string_view record)>& take) {
    std::array<char, 8192> record;  // NOLINT(cppcoreguidelines-pro-type-member-init)
    for (int count = 0; log_ && count < most; ++count) {
        const ssize_t bytes = ::read(log_.get(), record.data(), record.size());
        if (bytes < 0 && (errno == EPIPE || errno == EINTR)) {
            continue;  // Records were overwritten before they were read.
        }
        if (bytes <= 0 || !take({record.data(), static_cast<std::size_t>(bytes)})) {
            return;
        }
    }
}

// The first PID namespace of the kernel has a fixed number.
bool has_pids_of_machine(const fs::path& root) {
    std::error_code none;
    return fs::read_symlink(root / "proc/self/ns/pid", none) == "pid:[4026531836]";
}

std::string_view kernel_text(std::string_view record) noexcept {
    unsigned priority = 0;
    const auto [end, error] =
        std::from_chars(record.data(), record.data() + record.size(), priority);
    const std::size_t semicolon = record.find(';');
    if (error != std::errc() || priority > 7 || semicolon == std::string_view::npos) {
        return {};
    }
    const std::string_view text = record.substr(semicolon + 1);
    return text.substr(0, text.find('\n'));
}

}  // namespace regroup::agent
