// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/terminal.h"

#include <cerrno>
#include <clocale>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <langinfo.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>
#include <utility>

// NCURSES_NOMACROS: its macros have the names of ordinary functions.
#define NCURSES_NOMACROS 1
#define NCURSES_WIDECHAR 1
#include <ncurses.h>

#include "launcher/host.h"

namespace regroup::launcher::top {

namespace {

// How long the rest of a key that begins with ESC may take, in milliseconds.
constexpr int kEscapeDelay = 50;

std::string variable(const char* name) {
    const char* value = std::getenv(name);
    return value == nullptr ? "" : value;
}

bool use_utf8() {
    if (std::setlocale(LC_CTYPE, "") == nullptr) {
        // A slim container has no other locales.
        const std::string wanted = variable("LC_ALL") + variable("LC_CTYPE") + variable("LANG");
        const bool is_utf8 =
            wanted.find("UTF-8") != wanted.npos || wanted.find("utf8") != wanted.npos;
        std::setlocale(LC_CTYPE, is_utf8 ? "C.UTF-8" : "C");
    }
    return std::strcmp(::nl_langinfo(CODESET), "UTF-8") == 0;
}

std::string utf8_of(char32_t code) {
    std::string text;
    if (code < 0x80) {
        text += static_cast<char>(code);
    } else if (code < 0x800) {
        text += static_cast<char>(0xc0U | code >> 6U);
        text += static_cast<char>(0x80U | (code & 0x3fU));
    } else if (code < 0x10000) {
        text += static_cast<char>(0xe0U | code >> 12U);
        text += static_cast<char>(0x80U | (code >> 6U & 0x3fU));
        text += static_cast<char>(0x80U | (code & 0x3fU));
    } else {
        text += static_cast<char>(0xf0U | code >> 18U);
        text += static_cast<char>(0x80U | (code >> 12U & 0x3fU));
        text += static_cast<char>(0x80U | (code >> 6U & 0x3fU));
        text += static_cast<char>(0x80U | (code & 0x3fU));
    }
    return text;
}

Key key_of(wint_t code) {
    switch (code) {
        case KEY_UP:
            return Key::up;
        case KEY_DOWN:
            return Key::down;
        case KEY_PPAGE:
            return Key::page_up;
        case KEY_NPAGE:
            return Key::page_down;
        case KEY_HOME:
            return Key::home;
        case KEY_END:
            return Key::end;
        case KEY_ENTER:
        case KEY_RIGHT:
            return Key::enter;
        case KEY_LEFT:
            return Key::escape;
        case KEY_BACKSPACE:
            return Key::backspace;
        default:
            return Key::none;
    }
}

// Pairs of colours.
constexpr short kGood = 1;
constexpr short kWarning = 2;
constexpr short kBad = 3;
constexpr short kBar = 4;

attr_t attribute_of(Style style, bool colored) {
    switch (style) {
        case Style::normal:
            return A_NORMAL;
        case Style::dim:
            return A_DIM;
        case Style::bold:
            return A_BOLD;
        case Style::good:
            return colored ? static_cast<attr_t>(COLOR_PAIR(kGood)) : A_NORMAL;
        case Style::warning:
            return colored ? static_cast<attr_t>(COLOR_PAIR(kWarning)) : A_BOLD;
        case Style::bad:
            return (colored ? static_cast<attr_t>(COLOR_PAIR(kBad)) : A_NORMAL) | A_BOLD;
        case Style::bar:
            return (colored ? static_cast<attr_t>(COLOR_PAIR(kBar)) : A_NORMAL) | A_BOLD;
        case Style::heading:
            return A_BOLD | A_UNDERLINE;
        case Style::selected:
            return A_REVERSE;
    }
    return A_NORMAL;
}

}  // namespace

struct Terminal::Curses {
    SCREEN* screen = nullptr;
    bool colored = false;
};

std::string Terminal::objection() {
    if (::isatty(STDIN_FILENO) == 0 || ::isatty(STDOUT_FILENO) == 0) {
        return "stdin or stdout is no terminal";
    }
    return terminal_has_cursor() ? ""
                                 : "the terminal has no cursor (TERM=" + variable("TERM") + ")";
}

Result<std::unique_ptr<Terminal>> Terminal::open() {
    std::unique_ptr<Terminal> terminal(new Terminal);
    // Own descriptors, since waiting for keys must not make those of the shell non-blocking.
    for (const char* path : {"/proc/self/fd/0", "/dev/tty"}) {
        if (terminal->input_ < 0) {
            terminal->input_ = ::open(path, O_RDONLY | O_NOCTTY | O_CLOEXEC);
        }
    }
    if (terminal->input_ < 0) {
        return Failure(Errc::system,
                       std::string("the terminal cannot be opened: ") + std::strerror(errno));
    }
    terminal->utf8_ = use_utf8();
    ::set_escdelay(kEscapeDelay);
    ::use_tioctl(TRUE);  // The size of the terminal, whatever LINES and COLUMNS say.
    Curses& curses = *terminal->curses_;
    curses.screen = ::newterm(nullptr, stdout, stdin);
    if (curses.screen == nullptr) {
        return Failure(Errc::system,
                       "the kind of terminal is not known here (TERM=" + variable("TERM") + ")");
    }
    curses.colored = variable("NO_COLOR").empty() && ::has_colors();
    if (curses.colored) {
        ::start_color();
        const bool has_default = ::use_default_colors() == OK;
        const short ground = has_default ? -1 : COLOR_BLACK;
        ::init_pair(kGood, COLOR_GREEN, ground);
        ::init_pair(kWarning, COLOR_YELLOW, ground);
        ::init_pair(kBad, COLOR_RED, ground);
        ::init_pair(kBar, COLOR_CYAN, ground);
    }
    ::cbreak();
    ::noecho();
    ::nonl();
    ::curs_set(0);
    ::keypad(stdscr, TRUE);
    ::nodelay(stdscr, TRUE);
    ::leaveok(stdscr, TRUE);
    return terminal;
}

Terminal::Terminal() : curses_(std::make_unique<Curses>()) {}

Terminal::~Terminal() {
    if (curses_->screen != nullptr) {
        ::curs_set(1);
        ::endwin();
        ::delscreen(curses_->screen);
    }
    if (input_ >= 0) {
        ::close(input_);
    }
}

Press Terminal::read() {
    constexpr wint_t kCtrlL = 'L' - '@';
    constexpr wint_t kEscape = 27;
    constexpr wint_t kDelete = 127;
    for (;;) {
        wint_t code = 0;
        const int kind = ::get_wch(&code);
        if (kind == ERR) {
            pollfd state{input_, POLLIN, 0};
            gone_ = ::poll(&state, 1, 0) > 0 && (state.revents & (POLLHUP | POLLERR)) != 0;
            return {};
        }
        if (kind == KEY_CODE_YES) {
            if (const Key key = key_of(code); key != Key::none) {
                return {key, ""};
            }
        } else if (code == '\r' || code == '\n') {
            return {Key::enter, ""};
        } else if (code == kEscape) {
            return {Key::escape, ""};
        } else if (code == kDelete || code == '\b') {
            return {Key::backspace, ""};
        } else if (code == kCtrlL) {
            restore();
        } else if (code >= ' ') {
            return {Key::text, utf8_of(static_cast<char32_t>(code))};
        }
    }
}

Size Terminal::size() const {
    return {static_cast<std::size_t>(::getmaxy(stdscr)),
            static_cast<std::size_t>(::getmaxx(stdscr))};
}

void Terminal::draw(const std::vector<Row>& rows) {
    ::werase(stdscr);
    int y = 0;
    for (const Row& row : rows) {
        ::wmove(stdscr, y++, 0);
        for (const Span& span : row) {
            ::wattrset(stdscr, static_cast<int>(attribute_of(span.style, curses_->colored)));
            ::waddnstr(stdscr, span.text.c_str(), -1);
        }
    }
    ::wattrset(stdscr, A_NORMAL);
    ::wrefresh(stdscr);
}

void Terminal::resize() {
    winsize size{};
    if (::ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0) {
        ::resizeterm(size.ws_row, size.ws_col);
    }
    ::clearok(stdscr, TRUE);
}

void Terminal::suspend() {
    ::curs_set(1);
    ::endwin();
    // The default action stops this process. Without a shell that would continue it, the kernel
    // ignores the signal.
    struct sigaction stop{};
    stop.sa_handler = SIG_DFL;
    struct sigaction ours{};
    ::sigaction(SIGTSTP, &stop, &ours);
    sigset_t unblocked;
    sigset_t before;
    ::sigemptyset(&unblocked);
    ::sigaddset(&unblocked, SIGTSTP);
    ::pthread_sigmask(SIG_UNBLOCK, &unblocked, &before);
    std::raise(SIGTSTP);
    ::pthread_sigmask(SIG_SETMASK, &before, nullptr);
    ::sigaction(SIGTSTP, &ours, nullptr);
    restore();
}

void Terminal::restore() {
    ::reset_prog_mode();
    ::curs_set(0);
    resize();
}

}  // namespace regroup::launcher::top
