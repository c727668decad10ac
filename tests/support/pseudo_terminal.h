// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <chrono>
#include <cstddef>
#include <functional>
#include <optional>
#include <string>
#include <sys/types.h>
#include <termios.h>
#include <vector>

namespace regroup::testing {

/// The screen of a terminal of the kind xterm after the bytes that it was sent: enough of it for
/// programs with ncurses. Colours are ignored.
class Screen {
   public:
    Screen(std::size_t rows, std::size_t columns) { resize(rows, columns); }

    void resize(std::size_t rows, std::size_t columns);
    void feed(const std::string& bytes);
    /// The rows without spaces at their ends, each with a newline.
    [[nodiscard]] std::string text() const;
    [[nodiscard]] std::string row(std::size_t at) const;
    /// True while a program has the screen for itself, and the former content is put aside.
    [[nodiscard]] bool is_alternate() const { return alternate_; }
    [[nodiscard]] bool shows_cursor() const { return cursor_; }

   private:
    using Cells = std::vector<std::vector<std::string>>;

    void put(const std::string& character);
    void control(char byte);
    void escape(char last);
    /// 0: from the cursor on; 1: up to it; 2: all.
    void erase(std::size_t kind);
    void sequence(char last);
    void set_modes(bool on);
    void line_feed();
    void scroll(std::size_t top, std::size_t bottom, std::ptrdiff_t up);
    [[nodiscard]] std::size_t argument(std::size_t at, std::size_t otherwise) const;

    std::size_t rows_ = 0;
    std::size_t columns_ = 0;
    Cells cells_;
    Cells former_;  ///< While `alternate_`.
    std::size_t y_ = 0;
    std::size_t x_ = 0;
    std::size_t saved_y_ = 0;
    std::size_t saved_x_ = 0;
    std::size_t top_ = 0;     ///< The scrolled region.
    std::size_t bottom_ = 0;  ///< Its last row.
    std::string last_;        ///< The last character, which can be repeated.
    std::string pending_;     ///< An unfinished sequence or character.
    std::string arguments_;
    bool alternate_ = false;
    bool cursor_ = true;
};

/// A process on a pseudo terminal of its own. The destructor kills it.
class PseudoTerminal {
   public:
    /// Starts `command` in the folder of the test. `environment`: all of it, besides PATH and the
    /// options of sanitizers.
    PseudoTerminal(const std::vector<std::string>& command,
                   const std::vector<std::string>& environment, std::size_t rows = 24,
                   std::size_t columns = 80);
    /// The same for a function of this program. The process ends after it.
    explicit PseudoTerminal(const std::function<void()>& child);
    ~PseudoTerminal();
    PseudoTerminal(const PseudoTerminal&) = delete;
    PseudoTerminal& operator=(const PseudoTerminal&) = delete;

    [[nodiscard]] pid_t pid() const { return pid_; }
    void type(const std::string& keys) const;
    void resize(std::size_t rows, std::size_t columns);
    /// Reads until the screen satisfies `condition`; false if it does not within `limit`.
    bool until(const std::function<bool(const Screen&)>& condition,
               std::chrono::milliseconds limit = std::chrono::seconds(40));
    /// Reads until the screen shows `text`.
    bool shows(const std::string& text, std::chrono::milliseconds limit = std::chrono::seconds(40));
    [[nodiscard]] const Screen& screen() const { return screen_; }
    /// All bytes so far.
    [[nodiscard]] const std::string& bytes() const { return bytes_; }
    /// Line editing and echo, as a shell expects to find them.
    [[nodiscard]] bool is_cooked() const;
    /// Reads until the process has ended. As a shell shows its end: the code, or 128 + signal.
    std::optional<int> wait(std::chrono::milliseconds limit = std::chrono::seconds(40));

   private:
    bool read();  // False once nothing more can come.

    pid_t pid_ = -1;
    int fd_ = -1;
    Screen screen_;
    std::string bytes_;
    std::optional<int> status_;
};

}  // namespace regroup::testing
