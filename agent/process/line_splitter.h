// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Cuts one stream of output into the lines that people read.
///
/// A line ends with LF or CR LF. A lone CR, by which a progress bar overwrites itself, ends one
/// too; of those, at most one in a second is kept, or the bars of many workers would bury the
/// rest. Holds at most one line.
class LineSplitter {
   public:
    /// Longer lines come in pieces of this length.
    static constexpr std::size_t kLineBytesMax = std::size_t{64} << 10;

    /// Gets one line without its end. What it refers to lives for the call.
    using Sink = std::function<void(std::string_view line)>;

    void feed(std::string_view bytes, Instant now, const Sink& sink);

    /// The stream has ended, or its writer has: what came since the last line is a line.
    void finish(const Sink& sink);

   private:
    void append(std::string_view piece, const Sink& sink);
    void end_line(const Sink& sink);

    std::string partial_;
    bool after_return_ = false;  ///< `partial_` was followed by CR.
    Instant next_update_ = Instant::min();
};

}  // namespace regroup::agent
