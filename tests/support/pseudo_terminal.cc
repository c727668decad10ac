// SPDX-License-Identifier: Apache-2.0
#include "tests/support/pseudo_terminal.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <poll.h>
#include <pty.h>
#include <signal.h>
#include <stdexcept>
#include <sys/ioctl.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

namespace regroup::testing {

namespace {

constexpr char kEscape = '\x1b';

winsize size_of(std::size_t rows, std::size_t columns) {
    winsize size{};
    size.ws_row = static_cast<unsigned short>(rows);
    size.ws_col = static_cast<unsigned short>(columns);
    return size;
}

}  // namespace

// ---- The screen.

void Screen::resize(std::size_t rows, std::size_t columns) {
    rows_ = rows;
    columns_ = columns;
    for (Cells* cells : {&cells_, &former_}) {
        cells->resize(rows);
        for (auto& row : *cells) {
            row.resize(columns, " ");
        }
    }
    top_ = 0;
    bottom_ = rows - 1;
    y_ = std::min(y_, bottom_);
    x_ = std::min(x_, columns - 1);
}

void Screen::feed(const std::string& bytes) {
    for (const char byte : bytes) {
        const auto code = static_cast<unsigned char>(byte);
        if (!pending_.empty() && pending_.front() == kEscape) {
            if (pending_.size() == 1 && byte != '[') {
                // Two bytes, or three that choose a character set.
                if (byte == '(' || byte == ')') {
                    pending_ += byte;
                } else {
                    pending_.clear();
                    escape(byte);
                }
            } else if (pending_.size() > 1 && pending_[1] != '[') {
                pending_.clear();
            } else if (pending_.size() > 1 && code >= 0x40) {
                arguments_ = pending_.substr(2);
                pending_.clear();
                sequence(byte);
            } else {
                pending_ += byte;
            }
        } else if (byte == kEscape) {
            pending_ = byte;
        } else if (code < 0x20) {
            control(byte);
        } else if (code < 0x80) {
            put(std::string(1, byte));
        } else {
            pending_ += byte;
            const auto lead = static_cast<unsigned char>(pending_.front());
            if (pending_.size() == (lead >= 0xf0 ? 4U : lead >= 0xe0 ? 3U : 2U)) {
                put(std::exchange(pending_, ""));
            }
        }
    }
}

void Screen::put(const std::string& character) {
    if (x_ >= columns_) {
        x_ = 0;
        line_feed();
    }
    cells_[y_][x_++] = last_ = character;
}

void Screen::control(char byte) {
    if (byte == '\n') {
        line_feed();
    } else if (byte == '\r') {
        x_ = 0;
    } else if (byte == '\b') {
        x_ -= std::min<std::size_t>(x_, 1);
    } else if (byte == '\t') {
        x_ = std::min(columns_ - 1, (x_ / 8 + 1) * 8);
    }
}

void Screen::line_feed() {
    if (y_ == bottom_) {
        scroll(top_, bottom_, 1);
    } else {
        y_ = std::min(rows_ - 1, y_ + 1);
    }
}

void Screen::scroll(std::size_t top, std::size_t bottom, std::ptrdiff_t up) {
    for (; up != 0 && top <= bottom; up += up > 0 ? -1 : 1) {
        cells_.erase(cells_.begin() + static_cast<std::ptrdiff_t>(up > 0 ? top : bottom));
        cells_.insert(cells_.begin() + static_cast<std::ptrdiff_t>(up > 0 ? bottom : top),
                      std::vector<std::string>(columns_, " "));
    }
}

void Screen::escape(char last) {
    if (last == '7') {
        saved_y_ = y_;
        saved_x_ = x_;
    } else if (last == '8') {
        y_ = std::min(saved_y_, rows_ - 1);
        x_ = saved_x_;
    } else if (last == 'M') {
        if (y_ == top_) {
            scroll(top_, bottom_, -1);
        } else {
            y_ -= std::min<std::size_t>(y_, 1);
        }
    } else if (last == 'D') {
        line_feed();
    }
}

std::size_t Screen::argument(std::size_t at, std::size_t otherwise) const {
    std::size_t begin = 0;
    for (; at > 0 && begin != std::string::npos; --at) {
        begin = arguments_.find(';', begin);
        begin += begin == std::string::npos ? 0 : 1;
    }
    if (begin == std::string::npos || begin >= arguments_.size()) {
        return otherwise;
    }
    const auto number = std::strtoul(arguments_.c_str() + begin, nullptr, 10);
    return number == 0 ? otherwise : number;
}

void Screen::set_modes(bool on) {
    if (arguments_.find("?25") == 0) {
        cursor_ = on;
    } else if (arguments_.find("?1049") == 0 && on != alternate_) {
        alternate_ = on;
        std::swap(cells_, former_);
        if (on) {
            cells_.assign(rows_, std::vector<std::string>(columns_, " "));
        }
    }
}

void Screen::erase(std::size_t kind) {
    for (std::size_t y = 0; y < rows_; ++y) {
        for (std::size_t at = 0; at < columns_; ++at) {
            const bool is_behind = y > y_ || (y == y_ && at >= x_);
            if (kind == 2 || (kind == 0) == is_behind) {
                cells_[y][at] = " ";
            }
        }
    }
}

void Screen::sequence(char last) {
    const std::size_t count = argument(0, 1);
    auto& row = cells_[y_];
    const auto x = static_cast<std::ptrdiff_t>(std::min(x_, columns_));
    switch (last) {
        case 'H':
        case 'f':
            y_ = std::min(argument(0, 1), rows_) - 1;
            x_ = std::min(argument(1, 1), columns_) - 1;
            break;
        case 'A':
            y_ -= std::min(y_, count);
            break;
        case 'B':
            y_ = std::min(rows_ - 1, y_ + count);
            break;
        case 'C':
            x_ = std::min(columns_ - 1, x_ + count);
            break;
        case 'D':
            x_ -= std::min(x_, count);
            break;
        case 'G':
            x_ = std::min(count, columns_) - 1;
            break;
        case 'd':
            y_ = std::min(count, rows_) - 1;
            break;
        case 'J':
            erase(argument(0, 0));
            break;
        case 'K': {
            const std::size_t kind = argument(0, 0);
            std::fill(kind == 0 ? row.begin() + x : row.begin(),
                      kind == 1 ? row.begin() + std::min<std::ptrdiff_t>(x + 1, std::ssize(row))
                                : row.end(),
                      " ");
            break;
        }
        case 'X':
            std::fill_n(row.begin() + x, std::min(count, columns_ - static_cast<std::size_t>(x)),
                        " ");
            break;
        case 'P':
            row.erase(row.begin() + x, row.begin() + x +
                                           static_cast<std::ptrdiff_t>(std::min(
                                               count, columns_ - static_cast<std::size_t>(x))));
            row.resize(columns_, " ");
            break;
        case '@':
            row.insert(row.begin() + x, count, " ");
            row.resize(columns_);
            break;
        case 'L':
            scroll(y_, bottom_, -static_cast<std::ptrdiff_t>(count));
            break;
        case 'M':
            scroll(y_, bottom_, static_cast<std::ptrdiff_t>(count));
            break;
        case 'S':
            scroll(top_, bottom_, static_cast<std::ptrdiff_t>(count));
            break;
        case 'T':
            scroll(top_, bottom_, -static_cast<std::ptrdiff_t>(count));
            break;
        case 'b':
            for (std::size_t i = 0; i < count; ++i) {
                put(std::string(last_));
            }
            break;
        case 'r':
            top_ = std::min(argument(0, 1), rows_) - 1;
            bottom_ = std::min(argument(1, rows_), rows_) - 1;
            y_ = x_ = 0;
            break;
        case 'h':
        case 'l':
            set_modes(last == 'h');
            break;
        default:
            break;
    }
}

std::string Screen::row(std::size_t at) const {
    std::string text;
    for (const std::string& cell : cells_.at(at)) {
        text += cell;
    }
    return text.substr(0, text.find_last_not_of(' ') + 1);
}

std::string Screen::text() const {
    std::string text;
    for (std::size_t y = 0; y < rows_; ++y) {
        text += row(y) + "\n";
    }
    return text;
}

// ---- The process.

PseudoTerminal::PseudoTerminal(const std::vector<std::string>& command,
                               const std::vector<std::string>& environment, std::size_t rows,
                               std::size_t columns)
    : screen_(rows, columns) {
    std::vector<std::string> words = command;
    std::vector<std::string> variables = environment;
    for (const char* name :
         {"PATH", "ASAN_OPTIONS", "LSAN_OPTIONS", "TSAN_OPTIONS", "UBSAN_OPTIONS"}) {
        if (const char* value = std::getenv(name)) {
            variables.push_back(std::string(name) + "=" + value);
        }
    }
    const auto pointers = [](std::vector<std::string>& texts) {
        std::vector<char*> all;
        for (std::string& text : texts) {
            all.push_back(text.data());
        }
        all.push_back(nullptr);
        return all;
    };
    const std::vector<char*> arguments = pointers(words);
    const std::vector<char*> values = pointers(variables);
    const winsize size = size_of(rows, columns);
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ < 0) {
        throw std::runtime_error("forkpty failed");
    }
    if (pid_ == 0) {
        ::execve(arguments[0], arguments.data(), values.data());
        ::_exit(127);
    }
}

PseudoTerminal::PseudoTerminal(const std::function<void()>& child) : screen_(24, 80) {
    const winsize size = size_of(24, 80);
    pid_ = ::forkpty(&fd_, nullptr, nullptr, &size);
    if (pid_ < 0) {
        throw std::runtime_error("forkpty failed");
    }
    if (pid_ == 0) {
        child();
        ::_exit(0);
    }
}

PseudoTerminal::~PseudoTerminal() {
    if (!status_) {
        ::kill(pid_, SIGKILL);
        ::waitpid(pid_, nullptr, 0);
    }
    ::close(fd_);
}

void PseudoTerminal::type(const std::string& keys) const {
    if (::write(fd_, keys.data(), keys.size()) != static_cast<ssize_t>(keys.size())) {
        throw std::runtime_error("the terminal takes no keys");
    }
}

void PseudoTerminal::resize(std::size_t rows, std::size_t columns) {
    const winsize size = size_of(rows, columns);
    screen_.resize(rows, columns);
    ::ioctl(fd_, TIOCSWINSZ, &size);
}

bool PseudoTerminal::read() {
    pollfd state{fd_, POLLIN, 0};
    if (::poll(&state, 1, 10) <= 0) {
        return true;
    }
    std::array<char, 4096> buffer{};
    const ssize_t count = ::read(fd_, buffer.data(), buffer.size());
    if (count <= 0) {
        return false;  // The last process has closed the other end.
    }
    const std::string bytes(buffer.data(), static_cast<std::size_t>(count));
    bytes_ += bytes;
    screen_.feed(bytes);
    return true;
}

bool PseudoTerminal::until(const std::function<bool(const Screen&)>& condition,
                           std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    while (!condition(screen_)) {
        if (!read() || std::chrono::steady_clock::now() > deadline) {
            return condition(screen_);
        }
    }
    return true;
}

bool PseudoTerminal::shows(const std::string& text, std::chrono::milliseconds limit) {
    return until([&](const Screen& screen) { return screen.text().find(text) != text.npos; },
                 limit);
}

bool PseudoTerminal::is_cooked() const {
    termios state{};
    return ::tcgetattr(fd_, &state) == 0 && (state.c_lflag & ECHO) != 0 &&
           (state.c_lflag & ICANON) != 0;
}

std::optional<int> PseudoTerminal::wait(std::chrono::milliseconds limit) {
    const auto deadline = std::chrono::steady_clock::now() + limit;
    bool open = true;
    while (!status_ && std::chrono::steady_clock::now() < deadline) {
        open = open && read();
        int status = 0;
        if (::waitpid(pid_, &status, WNOHANG) == pid_) {
            status_ = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
            pollfd state{fd_, POLLIN, 0};
            while (open && ::poll(&state, 1, 0) > 0) {
                open = read();
            }
        } else if (!open) {
            ::usleep(1000);
        }
    }
    return status_;
}

}  // namespace regroup::testing
