// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <map>
#include <string>
#include <string_view>

#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Splits one stream of output into lines for the terminal.
///
/// A line ends with LF, CR LF, or a lone CR (a progress bar). Of lines that end with CR, at most
/// one in a second is kept, so that progress bars do not hide other output.
///
/// Several bars below each other are drawn again by moving the cursor up. Here the cursor must not
/// move, because other ranks write above it. So at most once in a second, and at the end, all lines
/// are shown that were drawn again since then. Of control sequences only those for colours are
/// kept.
///
/// Holds at most one line and one drawing.
class LineSplitter {
   public:
    /// Longer lines are split into pieces of this length.
    static constexpr std::size_t kLineBytesMax = std::size_t{64} << 10;

    /// Gets one line without its end. `line` is valid during the call.
    using Sink = std::function<void(std::string_view line)>;

    void feed(std::string_view bytes, Instant now, const Sink& sink);

    /// Call at the end of the stream or of its writer. The rest becomes a line.
    void finish(const Sink& sink);

    /// The beginning of a line that may be a question: text that nothing draws over. Valid until
    /// the next call.
    [[nodiscard]] std::string_view partial() const noexcept;

   private:
    [[nodiscard]] bool is_due(Instant now);
    void append(std::string_view piece, const Sink& sink);
    void end_line(const Sink& sink);
    void return_carriage(Instant now, const Sink& sink);
    void feed_line(Instant now, const Sink& sink);
    /// Returns the number of bytes that belong to the sequence that has begun.
    std::size_t go_on_with_sequence(std::string_view bytes, Instant now, const Sink& sink);
    void obey_sequence(Instant now, const Sink& sink);
    void move_up(std::size_t lines, Instant now, const Sink& sink);
    void put_redrawn();
    void show_redrawn(const Sink& sink);

    /// Lines that the program draws again and again.
    struct Drawing {
        bool begun = false;
        std::size_t lines_below = 0;  ///< Lines of the drawing below the cursor.
        bool fresh = false;           ///< Nothing was drawn since the cursor went up.
        bool replaces = false;        ///< The present text replaces that of a line. Else it is new.
        /// Redrawn lines that were not shown, by the number of lines below them.
        std::map<std::size_t, std::string, std::greater<>> redrawn;
    };

    std::string partial_;
    bool after_return_ = false;  ///< `partial_` was followed by CR.
    std::string sequence_;       ///< A control sequence that has begun; else empty.
    Instant next_update_ = Instant::min();
    Drawing drawing_;
};

}  // namespace regroup::agent
