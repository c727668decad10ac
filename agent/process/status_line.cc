// SPDX-License-Identifier: Apache-2.0
#include "agent/process/status_line.h"

#include <algorithm>
#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

namespace regroup::agent {

bool is_own_terminal(int fd) {
    if (::isatty(fd) != 1) {
        return false;
    }
    // An agent has a group of its own; that of its warden is the job of the shell.
    const pid_t foreground = ::tcgetpgrp(fd);
    return foreground == ::getpgrp() || foreground == ::getpgid(::getppid());
}

std::string row_of(int fd, const std::string& text) {
    winsize size{};
    const bool is_known = ::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_col > 1;
    // A character takes no more columns than bytes.
    std::size_t end = std::min(text.size(), std::size_t{is_known ? size.ws_col - 1U : 79U});
    while (end > 0 && end < text.size() &&
           (static_cast<unsigned char>(text[end]) & 0xc0U) == 0x80) {
        --end;
    }
    return text.substr(0, end);
}

}  // namespace regroup::agent
