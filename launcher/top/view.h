// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "launcher/top/lists.h"
#include "launcher/top/status.h"
#include "launcher/top/table.h"
#include "rendezvous/base/clock.h"

namespace regroup::launcher::top {

enum class Key : std::uint8_t {
    none,
    text,  ///< See Press::text.
    up,
    down,
    page_up,
    page_down,
    home,
    end,
    enter,
    escape,
    backspace,
};
struct Press {
    Key key = Key::none;
    std::string text{};  ///< One character as UTF-8.
};

struct Size {
    std::size_t rows = 24;
    std::size_t columns = 80;
};

/// The screen of `regroup top`, and the effects of its keys. Pure; one owner. It holds one
/// status of the daemon, so it does not grow.
class View {
   public:
    /// `daemon`: as people call it. `job`: if it is not empty, the view begins with this job.
    /// `late_after`: a status that is older is marked.
    View(std::string daemon, const std::string& job, Duration late_after);

    /// A new status, with the time of day: "21:30:05 UTC".
    void take(Status status, Instant now, std::string time);
    /// No status comes, for this reason. Until the next take().
    void lose(std::string why) { trouble_ = std::move(why); }
    /// False if the key ends the program.
    [[nodiscard]] bool press(const Press& press);
    /// At most `size.rows` rows of at most `size.columns` columns. `utf8`: the terminal can show
    /// more than ASCII.
    [[nodiscard]] std::vector<Row> draw(Size size, Instant now, bool utf8);

   private:
    enum class Screen : std::uint8_t { jobs, job, help };
    /// A table through which the cursor moves.
    struct Cursor {
        std::string selected;   ///< The key of the row under the cursor.
        std::size_t at = 0;     ///< Its place when it was last drawn.
        std::size_t count = 0;  ///< Rows when it was last drawn.
        std::size_t page = 1;   ///< Rows on the screen.
        std::size_t top = 0;    ///< The first row on the screen.
        Order order{};
    };

    [[nodiscard]] Cursor& list() { return screen_ == Screen::job ? nodes_ : jobs_; }
    [[nodiscard]] const Cursor& list() const { return screen_ == Screen::job ? nodes_ : jobs_; }
    bool press_text(const std::string& text);
    void press_in_filter(const Press& press);
    void move(std::ptrdiff_t rows);
    void go_back();

    [[nodiscard]] Row title(std::size_t width) const;
    [[nodiscard]] std::vector<Row> head_of_jobs() const;
    [[nodiscard]] Row keys() const;
    void add_filter(std::vector<Row>& rows) const;
    [[nodiscard]] bool is_late(Instant now) const;
    void add_trouble(std::vector<Row>& rows, Instant now) const;

    void add_list(std::vector<Row>& rows, const List& lines, Size size, std::size_t height);
    [[nodiscard]] const Job* shown_job() const;

    const std::string daemon_;
    const Duration late_after_;
    std::optional<Status> status_;
    Instant taken_at_{};
    std::string time_;
    std::string trouble_;
    Screen screen_ = Screen::jobs;
    Screen before_help_ = Screen::jobs;
    std::string job_;       ///< Of Screen::job.
    bool fresh_ = true;     ///< No status and no key yet.
    bool filters_ = false;  ///< Keys go into the filter.
    Cursor jobs_;
    Cursor nodes_;
};

}  // namespace regroup::launcher::top
