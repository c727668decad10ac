// SPDX-License-Identifier: Apache-2.0
#include "launcher/top/view.h"

#include <algorithm>
#include <utility>

#include "launcher/top/job_rows.h"
#include "launcher/top/text_width.h"
#include "rendezvous/base/printable.h"
#include "rendezvous/base/time_text.h"

namespace regroup::launcher::top {

namespace {

// Smaller screens have no room for the title and the keys.
constexpr std::size_t kFrameRowsMin = 6;
constexpr std::size_t kFilterBytesMax = 100;

}  // namespace

View::View(std::string daemon, const std::string& job, Duration late_after)
    : daemon_(std::move(daemon)), late_after_(late_after), job_(job) {
    if (!job.empty()) {
        screen_ = Screen::job;
        fresh_ = false;
    }
}

void View::take(Status status, Instant now, std::string time) {
    if (std::exchange(fresh_, false) && status.jobs.size() == 1 && status.jobs_left_out == 0) {
        screen_ = Screen::job;
        job_ = status.jobs.front().id;
    }
    status_ = std::move(status);
    taken_at_ = now;
    time_ = std::move(time);
    trouble_.clear();
}

// ---- Keys.

bool View::press(const Press& press) {
    fresh_ = false;
    if (filters_) {
        press_in_filter(press);
        return true;
    }
    if (screen_ == Screen::help) {
        screen_ = before_help_;
        return press.text != "q";
    }
    const auto page = static_cast<std::ptrdiff_t>(list().page);
    const auto all = static_cast<std::ptrdiff_t>(list().count);
    switch (press.key) {
        case Key::up:
            move(-1);
            break;
        case Key::down:
            move(1);
            break;
        case Key::page_up:
            move(-page);
            break;
        case Key::page_down:
            move(page);
            break;
        case Key::home:
            move(-all);
            break;
        case Key::end:
            move(all);
            break;
        case Key::enter:
            if (screen_ == Screen::jobs && !jobs_.selected.empty()) {
                if (job_ != jobs_.selected) {
                    nodes_ = Cursor();
                }
                job_ = jobs_.selected;
                screen_ = Screen::job;
            }
            break;
        case Key::escape:
        case Key::backspace:
            go_back();
            break;
        case Key::text:
            return press_text(press.text);
        case Key::none:
            break;
    }
    return true;
}

bool View::press_text(const std::string& text) {
    if (text == "q") {
        return false;
    }
    if (text == "?" || text == "h") {
        before_help_ = std::exchange(screen_, Screen::help);
    } else if (text == "/") {
        filters_ = true;
    } else if (text == "s") {
        list().order.column = (list().order.column + 1) % kSortedColumns;
        list().order.reversed = false;
    } else if (text == "r") {
        list().order.reversed = !list().order.reversed;
    } else if (text == "k") {
        move(-1);
    } else if (text == "j") {
        move(1);
    } else if (text == "g") {
        move(-static_cast<std::ptrdiff_t>(list().count));
    } else if (text == "G") {
        move(static_cast<std::ptrdiff_t>(list().count));
    }
    return true;
}

void View::press_in_filter(const Press& press) {
    std::string& filter = list().order.filter;
    if (press.key == Key::enter) {
        filters_ = false;
    } else if (press.key == Key::escape) {
        filters_ = false;
        filter.clear();
    } else if (press.key == Key::backspace) {
        filter = without_last(filter);
    } else if (press.key == Key::text && filter.size() + press.text.size() <= kFilterBytesMax) {
        filter += press.text;
    }
}

void View::move(std::ptrdiff_t rows) {
    const auto last = static_cast<std::ptrdiff_t>(list().count) - 1;
    const auto at = static_cast<std::ptrdiff_t>(list().at) + rows;
    list().at = static_cast<std::size_t>(
        std::clamp<std::ptrdiff_t>(at, 0, std::max<std::ptrdiff_t>(last, 0)));
    list().selected.clear();  // The row at this place.
}

void View::go_back() {
    if (!list().order.filter.empty()) {
        list().order.filter.clear();
    } else if (screen_ == Screen::job) {
        screen_ = Screen::jobs;
        jobs_.selected = job_;
    }
}

// ---- Tables.

void View::add_list(std::vector<Row>& rows, const List& lines, Size size, std::size_t height) {
    Cursor& state = list();
    state.count = lines.rows.size();
    const auto found = std::ranges::find(lines.keys, state.selected);
    if (found != lines.keys.end()) {
        state.at = static_cast<std::size_t>(found - lines.keys.begin());
    }
    state.at = std::min(state.at, state.count - std::min<std::size_t>(state.count, 1));
    if (state.count > 0) {
        state.selected = lines.keys[state.at];
    }
    if (height == 0) {
        return;
    }
    const Table table(lines.columns, lines.rows, size.columns);
    rows.push_back(painted(table.heading(state.order.column, state.order.reversed), Style::heading,
                           size.columns));
    state.page = std::max<std::size_t>(1, height - 1);
    state.top = std::min(state.top, state.count - std::min(state.count, state.page));
    state.top = std::clamp(state.top, state.at + 1 - std::min(state.at + 1, state.page), state.at);
    for (std::size_t i = state.top; i < std::min(state.count, state.top + height - 1); ++i) {
        const Row row = table.row(lines.rows[i]);
        rows.push_back(i == state.at ? painted(row, Style::selected, size.columns) : row);
    }
}

// ---- Screens.

const Job* View::shown_job() const {
    const std::string& id = screen_ == Screen::job ? job_ : jobs_.selected;
    const auto found = std::ranges::find(status_->jobs, id, &Job::id);
    return found == status_->jobs.end() ? nullptr : &*found;
}

bool View::is_late(Instant now) const {
    return !trouble_.empty() || now >= after(taken_at_, late_after_);
}

void View::add_trouble(std::vector<Row>& rows, Instant now) const {
    if (is_late(now)) {
        rows.push_back(line("no status for " + format_age(now - taken_at_) + ", since " + time_ +
                                (trouble_.empty() ? "" : ": " + trouble_),
                            Style::bad));
    }
}

Row View::title(std::size_t width) const {
    std::string left = "regroup top  " + daemon_;
    const Job* const job = screen_ == Screen::job ? shown_job() : nullptr;
    if (screen_ == Screen::job) {
        left += "  job " + job_ +
                (job == nullptr ? "" : ": " + job->phase + ", round " + std::to_string(job->round));
    }
    const std::size_t room = width - std::min(width, time_.size() + 2);
    return line(columns_of(left) <= room ? fit(left, room) + "  " + time_ : fit(left, width),
                Style::bar);
}

std::vector<Row> View::head_of_jobs() const {
    std::uint64_t nodes = 0;
    std::uint64_t ranks = 0;
    for (const Job& job : status_->jobs) {
        nodes += job.nodes.size() + job.nodes_left_out;
        ranks += job.ranks;
    }
    const std::size_t jobs = status_->jobs.size();
    return {line(jobs == 0 ? "no jobs"
                           : counted(jobs, "job") + ", " + counted(nodes, "node") + ", " +
                                 counted(ranks, "rank") +
                                 (status_->jobs_left_out == 0
                                      ? ""
                                      : "; " + std::to_string(status_->jobs_left_out) +
                                            " more jobs do not fit (--job=ID shows one)"))};
}

Row View::keys() const {
    if (filters_) {
        return line("type a part of the row; Enter keeps the filter, Esc clears it", Style::dim);
    }
    const bool has_filter = !list().order.filter.empty();
    return line(std::string(screen_ == Screen::jobs ? "Enter one job" : "Esc all jobs") +
                    (has_filter ? "  Esc no filter" : "  / filter") +
                    "  s sort  r reverse  ? help  q quit",
                Style::dim);
}

void View::add_filter(std::vector<Row>& rows) const {
    const Cursor& state = list();
    if (filters_ || !state.order.filter.empty()) {
        rows.push_back({{"filter: ", Style::bold},
                        {state.order.filter + (filters_ ? "_" : ""), Style::normal}});
    }
}

std::vector<Row> View::draw(Size size, Instant now, bool utf8) {
    const bool framed = size.rows >= kFrameRowsMin;
    std::vector<Row> rows;
    std::vector<Row> tail;
    List lines;
    std::uint64_t left_out = 0;
    if (framed) {
        rows.push_back(title(size.columns));
    }
    if (screen_ == Screen::help) {
        std::ranges::move(help_rows(), std::back_inserter(rows));
    } else {
        add_trouble(rows, now);
    }
    if (!status_ && screen_ != Screen::help) {
        rows.push_back(line("waiting for the daemon"));
    } else if (screen_ == Screen::jobs) {
        std::ranges::move(head_of_jobs(), std::back_inserter(rows));
        lines = list_of_jobs(status_->jobs, jobs_.order);
        // The cursor decides whose details follow.
        std::vector<Row> ignored;
        add_list(ignored, lines, size, 0);
        if (const Job* const job = shown_job()) {
            tail = head_of(*job, size.columns, utf8);
            std::ranges::move(tail_of(*job), std::back_inserter(tail));
        }
    } else if (screen_ == Screen::job) {
        if (const Job* const job = shown_job()) {
            std::ranges::move(head_of(*job, size.columns, utf8), std::back_inserter(rows));
            lines = list_of_nodes(*job, nodes_.order);
            tail = tail_of(*job);
            left_out = job->nodes_left_out;
        } else {
            rows.push_back(line("the daemon has no job " + job_, Style::warning));
        }
    }
    if (screen_ != Screen::help && !lines.columns.empty()) {
        add_filter(rows);
        const std::size_t taken = rows.size() + (framed ? 1 : 0) + (left_out > 0 ? 1 : 0);
        const std::size_t room = size.rows - std::min(size.rows, taken);
        const std::size_t wanted = lines.rows.size() + 1;
        if (!tail.empty()) {
            tail.insert(tail.begin(), Row());
        }
        std::size_t below = std::max(room - std::min(room, wanted), room / 3);
        below = framed ? std::min(below, tail.size()) : 0;
        const std::size_t end = rows.size() + room - below;
        add_list(rows, lines, size, room - below);
        if (left_out > 0) {
            rows.push_back(line("and " + counted(left_out, "node") + " more", Style::dim));
        }
        rows.resize(end + (left_out > 0 ? 1 : 0));
        rows.insert(rows.end(), tail.begin(), tail.begin() + static_cast<std::ptrdiff_t>(below));
    }
    if (framed) {
        rows.resize(size.rows - 1);
        rows.push_back(keys());
    }
    rows.resize(std::min(rows.size(), size.rows));
    for (Row& row : rows) {
        row = clipped(row, size.columns);
        if (!utf8) {
            for (Span& span : row) {
                span.text = as_ascii(span.text);
            }
        }
    }
    return rows;
}

}  // namespace regroup::launcher::top
