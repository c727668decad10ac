// SPDX-License-Identifier: Apache-2.0
#include "agent/process/line_splitter.h"

#include <algorithm>
#include <cstdlib>
#include <utility>

namespace regroup::agent {
namespace {

constexpr Duration kUpdateInterval = std::chrono::seconds(1);
constexpr char kEscape = '\x1b';
constexpr std::size_t kSequenceBytesMax = 64;
constexpr std::size_t kDrawingLinesMax = 200;

bool is_blank(std::string_view text) {
    return text.find_first_not_of(' ') == text.npos;
}

}  // namespace

void LineSplitter::feed(std::string_view bytes, Instant now, const Sink& sink) {
    while (!bytes.empty()) {
        if (!sequence_.empty()) {
            bytes.remove_prefix(go_on_with_sequence(bytes, now, sink));
            continue;
        }
        if (after_return_ && bytes.front() != '\n' && bytes.front() != kEscape) {
            return_carriage(now, sink);
        }
        const std::size_t end = bytes.find_first_of("\r\n\x1b");
        append(bytes.substr(0, end), sink);
        if (end == std::string_view::npos) {
            return;
        }
        if (bytes[end] == '\n') {
            feed_line(now, sink);
        } else if (bytes[end] == '\r') {
            after_return_ = true;
        } else {
            sequence_ = kEscape;
        }
        bytes.remove_prefix(end + 1);
    }
}

void LineSplitter::finish(const Sink& sink) {
    if (!sequence_.empty()) {
        append(std::exchange(sequence_, ""), sink);
    }
    if (drawing_.lines_below > 0 && drawing_.replaces) {
        put_redrawn();
    }
    show_redrawn(sink);
    if (!partial_.empty()) {
        end_line(sink);
    }
    after_return_ = false;
    drawing_ = {};
}

std::string_view LineSplitter::partial() const noexcept {
    const bool is_plain = !after_return_ && sequence_.empty() && !drawing_.begun;
    return is_plain ? std::string_view(partial_) : std::string_view();
}

bool LineSplitter::is_due(Instant now) {
    const bool due = now >= next_update_;
    if (due) {
        next_update_ = after(now, kUpdateInterval);
    }
    return due;
}

void LineSplitter::append(std::string_view piece, const Sink& sink) {
    for (;;) {
        const std::size_t room = kLineBytesMax - partial_.size();
        partial_.append(piece.substr(0, room));
        if (piece.size() <= room) {
            return;
        }
        piece.remove_prefix(room);
        end_line(sink);
    }
}

void LineSplitter::end_line(const Sink& sink) {
    sink(partial_);
    partial_.clear();
    after_return_ = false;
}

// The next text is written over `partial_`. After blanks, which have cleared a bar, it is new.
void LineSplitter::return_carriage(Instant now, const Sink& sink) {
    after_return_ = false;
    drawing_.replaces = partial_.empty() || !is_blank(partial_);
    if (!is_blank(partial_) && is_due(now)) {
        end_line(sink);
    }
    partial_.clear();
}

void LineSplitter::feed_line(Instant now, const Sink& sink) {
    const bool is_empty = partial_.empty();
    const bool moves_down = drawing_.begun && (is_empty || drawing_.replaces);
    if (moves_down && (is_empty || drawing_.lines_below > 0)) {
        put_redrawn();
        drawing_.lines_below -= drawing_.lines_below > 0 ? 1 : 0;
        return;
    }
    // The last line of the drawing, or a line of the program between drawings.
    if (moves_down) {
        drawing_.redrawn.erase(0);
    }
    if (moves_down || (!drawing_.redrawn.empty() && is_due(now))) {
        show_redrawn(sink);
    }
    if (drawing_.lines_below == 0) {
        drawing_ = {};
    }
    end_line(sink);
}

// ---- Control sequences.

std::size_t LineSplitter::go_on_with_sequence(std::string_view bytes, Instant now,
                                              const Sink& sink) {
    if (sequence_.size() == 1 && bytes.front() != '[') {
        append(std::exchange(sequence_, ""), sink);
        return 0;
    }
    for (std::size_t i = 0; i < bytes.size(); ++i) {
        const auto byte = static_cast<unsigned char>(bytes[i]);
        if (byte < 0x20 || byte > 0x7e || sequence_.size() >= kSequenceBytesMax) {
            append(std::exchange(sequence_, ""), sink);  // It is none.
            return i;
        }
        sequence_ += bytes[i];
        if (sequence_.size() > 2 && byte >= 0x40) {
            obey_sequence(now, sink);
            return i + 1;
        }
    }
    return bytes.size();
}

void LineSplitter::obey_sequence(Instant now, const Sink& sink) {
    const std::string sequence = std::exchange(sequence_, "");
    switch (sequence.back()) {
        case 'm':  // Colours.
            if (after_return_) {
                return_carriage(now, sink);
            }
            append(sequence, sink);
            break;
        case 'A':  // Cursor up.
        case 'F':
            move_up(std::max(1UL, std::strtoul(sequence.c_str() + 2, nullptr, 10)), now, sink);
            break;
        case 'K':  // Erase the line.
            drawing_.replaces = true;
            break;
        default:
            break;
    }
}

void LineSplitter::move_up(std::size_t lines, Instant now, const Sink& sink) {
    const bool goes_on = drawing_.begun && drawing_.fresh && partial_.empty();
    if (!goes_on) {
        put_redrawn();
        if (!drawing_.redrawn.empty() && is_due(now)) {
            show_redrawn(sink);
        }
        drawing_.begun = drawing_.fresh = true;
        drawing_.replaces = false;
    }
    drawing_.lines_below = std::min(drawing_.lines_below + lines, kDrawingLinesMax);
}

// ---- Drawings.

void LineSplitter::put_redrawn() {
    after_return_ = drawing_.fresh = false;
    if (partial_.empty()) {
        return;  // The cursor has only passed the line.
    }
    if (is_blank(partial_)) {
        drawing_.redrawn.erase(drawing_.lines_below);
    } else {
        drawing_.redrawn[drawing_.lines_below] = partial_;
    }
    partial_.clear();
}

void LineSplitter::show_redrawn(const Sink& sink) {
    for (const auto& [lines_below, line] : std::exchange(drawing_.redrawn, {})) {
        sink(line);
    }
}

}  // namespace regroup::agent
