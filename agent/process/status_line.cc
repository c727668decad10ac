// SPDX-License-Identifier: Apache-2.0
#include "agent/process/status_line.h"

#include <sys/ioctl.h>
#include <termios.h>
#include <unistd.h>

#include "rendezvous/base/utf8.h"

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
    return std::string(beginning_of(text, is_known ? size.ws_col - 1U : 79U));
}

}  // namespace regroup::agent
