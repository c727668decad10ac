// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <vector>

#include "launcher/top/table.h"
#include "launcher/top/view.h"
#include "rendezvous/base/result.h"

namespace regroup::launcher::top {

/// The terminal of stdin and stdout as a screen of rows. It is as before once the object is gone.
/// At most one at a time, of one thread.
class Terminal {
   public:
    /// Why the terminal cannot be used; empty if it can.
    [[nodiscard]] static std::string objection();

    /// Errors: system, if the terminal of this kind is not known here. Handlers for SIGINT,
    /// SIGTERM, SIGTSTP and SIGWINCH should be in place before: ncurses leaves those alone.
    [[nodiscard]] static Result<std::unique_ptr<Terminal>> open();
    ~Terminal();
    Terminal(const Terminal&) = delete;
    Terminal& operator=(const Terminal&) = delete;

    /// A descriptor that is readable when keys wait. It belongs to this object.
    [[nodiscard]] int input() const noexcept { return input_; }
    /// The next key; Key::none if there is none.
    [[nodiscard]] Press read();
    /// True once the terminal is gone.
    [[nodiscard]] bool is_gone() const noexcept { return gone_; }
    [[nodiscard]] Size size() const;
    [[nodiscard]] bool shows_utf8() const noexcept { return utf8_; }
    void draw(const std::vector<Row>& rows);
    /// Its size has changed.
    void resize();
    /// Gives the terminal back, stops this process as Ctrl-Z does, and takes it again later.
    void suspend();
    /// Another process may have used the terminal: everything is drawn anew.
    void restore();

   private:
    Terminal();

    struct Curses;
    std::unique_ptr<Curses> curses_;
    int input_ = -1;
    bool utf8_ = false;
    bool gone_ = false;
};

}  // namespace regroup::launcher::top
