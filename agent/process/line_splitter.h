// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <string_view>

#include "rendezvous/base/clock.h"

namespace regroup::agent {

/// Splits one stream of output into lines for the terminal.
///
/// A line ends with LF, CR LF, or a lone CR (a progress bar). Of lines that end with CR, at most
/// one in a second is kept, so that progress bars do not hide other output. Holds at most one line.
class LineSplitter {
   public:
    /// Longer lines are split into pieces of this length.
    static constexpr std::size_t kLineBytesMax = std::size_t{64} << 10;

    /// Gets one line without its end. `line` is valid during the call.
    using Sink = std::function<void(std::string_view line)>;

    void feed(std::string_view bytes, Instant now, const Sink& sink);

    /// Call at the end of the stream or of its writer. The rest becomes a line.
    void finish(const Sink& sink);

   private:
    void append(std::string_view piece, const Sink& sink);
    void end_line(const Sink& sink);

    std::string partial_;
    bool after_return_ = false;  ///< `partial_` was followed by CR.
    Instant next_update_ = Instant::min();
};

}  // namespace regroup::agent
